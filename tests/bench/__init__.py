"""The bench: what it counts, how it goes on after a stop, and what it makes of a ledger."""
