"""The command line of jumpforward: thin, with no decoding logic of its own."""

__version__ = "0.1.0"
