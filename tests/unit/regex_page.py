"""The tables of `docs/regex.md` as data, so that each row can be tested."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/regex.md"
_CELL = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"`([^`]*)`")


@dataclass(frozen=True)
class Accepted:
    """A row of "What is in": a pattern, texts it matches, texts it does not."""

    pattern: str
    matching: list[str]
    others: list[str]


@dataclass(frozen=True)
class Refused:
    """A row of "What is refused"."""

    pattern: str
    error: str
    position: int


def accepted_rows() -> list[Accepted]:
    """The rows of "What is in"."""
    return [Accepted(_pattern(cells[0]), _texts(cells[1]), _texts(cells[2])) for cells in _rows("What is in")]


def refused_rows() -> list[Refused]:
    """The rows of "What is refused"."""
    return [Refused(_pattern(cells[0]), _code(cells[1]), int(cells[2])) for cells in _rows("What is refused")]


def _rows(heading: str) -> list[list[str]]:
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    # The first two lines are the head of the table.
    return [[cell.strip() for cell in _CELL.split(line)[1:-1]] for line in lines[2:]]


def _pattern(cell: str) -> str:
    return _code(cell).replace("\\|", "|")


def _code(cell: str) -> str:
    found = _CODE.fullmatch(cell)
    assert found is not None, f"not a code cell: {cell}"
    return found[1]


def _texts(cell: str) -> list[str]:
    return [_text(quoted) for quoted in _CODE.findall(cell)]


def _text(quoted: str) -> str:
    value = ast.literal_eval(quoted)
    assert isinstance(value, str)
    return value
