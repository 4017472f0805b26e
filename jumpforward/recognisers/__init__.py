"""Small, slow and simple: whether a text is in a grammar's language, decided without any decoder or library."""
