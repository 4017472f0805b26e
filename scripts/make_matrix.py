"""Writes docs/stages.md from the stages' capabilities; with --check it only says whether the page is up to date."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from jumpforward.stages_command import FEATURES, cells
from shared_runtime.policy import StageSpec
from stages import all_stages

DOCS = Path(__file__).resolve().parent.parent / "docs"
HEAD = """# What each stage could do

This page is made from the stages' `Capabilities` by `make docs-data`; `jumpforward stages` prints the same matrix. The
tests hold every cell, the "no" too: asking a stage for what its generation lacks is an error that names the first one
that has it. Where only some backends of a stage serve a kind, the cell names them.

"""
FOOT = """
`choice` is ours in every stage, an alternation of escaped texts: upstream's server had no such parameter. The jumps
`draft` and `force` are ours too and not in SGLang, where stage 5 has none.
"""


def page(specs: Sequence[StageSpec]) -> str:
    names = [f"{spec.id} [`{spec.name}`](../stages/{spec.name}/README.md)" for spec in specs]
    rows = [["", *names], ["---"] * (len(specs) + 1), ["when", *(spec.years for spec in specs)]]
    columns = [cells(spec.capabilities) for spec in specs]
    rows += [[feature, *(", ".join(column[index]) for column in columns)] for index, feature in enumerate(FEATURES)]
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows) + FOOT


def main(arguments: list[str]) -> int:
    target, text = DOCS / "stages.md", page(all_stages())
    if arguments == ["--check"]:
        if target.is_file() and target.read_text(encoding="utf-8") == text:
            return 0
        print("error: docs/stages.md is not what the stages say (make docs-data writes it)", file=sys.stderr)
        return 1
    target.write_text(text, encoding="utf-8")
    print(f"wrote {target.relative_to(DOCS.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
