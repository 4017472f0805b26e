"""Fills the tables of docs/performance.md from the ledgers it names; with --check only says whether they are right."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import overhead, speed, weight_error
from benchmarks.ledger import Ledger
from benchmarks.report import engines_table, growth_table, losses, peers_table, summary
from benchmarks.results import read_ledger
from scripts.generated_page import DOCS, write_or_check

PAGE = DOCS / "performance.md"
ROOT = DOCS.parent

_OF_A_LEDGER: dict[str, Callable[[Ledger], str]] = {
    "table": summary, "masks": engines_table, "growth": growth_table, "losses": losses,
    "peers": lambda ledger: peers_table([one for one in ledger.measurements if not one.stage])}
_OF_A_FILE: dict[str, Callable[[Any], str]] = {
    "speed": speed.table, "overhead": lambda data: overhead.table(data["rows"]),
    "weights": lambda data: weight_error.table(data["rows"])}
_KINDS = (*_OF_A_LEDGER, *_OF_A_FILE)
_BLOCK = re.compile(rf"<!-- ({'|'.join(_KINDS)}): (\S+) -->\n\n.*?\n\n<!-- end -->", re.DOTALL)


def filled(text: str) -> str:
    """The page with every block made anew; a block is `<!-- KIND: LEDGER -->` to `<!-- end -->`."""
    def block(found: re.Match[str]) -> str:
        kind, path = found[1], found[2]
        table = (_OF_A_LEDGER[kind](read_ledger(ROOT / path)) if kind in _OF_A_LEDGER
                 else _OF_A_FILE[kind](json.loads((ROOT / path).read_text(encoding="utf-8"))))
        return f"<!-- {kind}: {path} -->\n\n{table}\n\n<!-- end -->"

    return _BLOCK.sub(block, text)


def main(arguments: list[str], page: Path = PAGE) -> int:
    return write_or_check(page.name, filled(page.read_text(encoding="utf-8")), "the ledgers give", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
