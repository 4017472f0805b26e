"""Context-free grammars and structural tags."""
