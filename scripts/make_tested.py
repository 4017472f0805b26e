"""Writes docs/tested.md from docs/tested.json; with --check it only says whether the page is up to date."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from scripts.generated_page import DOCS, write_or_check

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
    return write_or_check("tested.md", page(read_rows()), "docs/tested.json gives", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
