"""A page of docs/ that is made from data: written, or held against what the data say."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def write_or_check(name: str, text: str, source: str, arguments: list[str]) -> int:
    """Write the page; with --check only say whether it is up to date. Returns the exit code."""
    target = DOCS / name
    if arguments == ["--check"]:
        if target.is_file() and target.read_text(encoding="utf-8") == text:
            return 0
        print(f"error: docs/{name} is not what {source} (make docs-data writes it)", file=sys.stderr)
        return 1
    target.write_text(text, encoding="utf-8")
    print(f"wrote docs/{name}")
    return 0
