"""One exhibit a file, named after its row."""
