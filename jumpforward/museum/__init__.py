"""The bug museum's catalogue: one TOML file a row, read by the command line, the tests and the docs alike."""

from jumpforward.museum.catalogue import Commit, MuseumRow, all_rows, get_row

__all__ = ["Commit", "MuseumRow", "all_rows", "get_row"]
