"""Using a grammar: masks, tokens, and faults in between."""
