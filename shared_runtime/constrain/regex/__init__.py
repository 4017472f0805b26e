"""Regular expressions as languages: one dialect, one tree, one automaton."""
