"""JSON schemas: read, checked, and said so that a library gets them right."""
