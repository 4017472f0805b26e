"""Writes docs/tested.md from docs/tested.json; with --check it only says whether the page is up to date."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
HEAD = """# What was run

This page is made from `tested.json` by `make docs-data`. A command stands in a row only when it really ran on that
combination and passed; "not run" means that the files for it are provided and checked as far as the note says.

| Python | torch | system | device | run | note |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One combination; `runs` holds the commands that passed there."""

    python: str
    torch: str
    system: str
    device: str
    runs: list[str]
    note: str


def read_rows(path: Path = DOCS / "tested.json") -> list[Row]:
    return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def page(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        runs = ", ".join(f"`{command}`" for command in row.runs) or "not run"
        lines.append(f"| {row.python} | {row.torch} | {row.system} | {row.device} | {runs} | {row.note} |\n")
    return HEAD + "".join(lines)


def main(arguments: list[str]) -> int:
    target, text = DOCS / "tested.md", page(read_rows())
    if arguments == ["--check"]:
        if target.is_file() and target.read_text(encoding="utf-8") == text:
            return 0
        print("error: docs/tested.md is not what docs/tested.json gives (make docs-data writes it)", file=sys.stderr)
        return 1
    target.write_text(text, encoding="utf-8")
    print(f"wrote {target.relative_to(DOCS.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
