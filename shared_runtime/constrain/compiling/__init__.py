"""Compiling: what it may cost, who does it, what is kept of it."""
