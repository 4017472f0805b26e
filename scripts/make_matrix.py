"""Writes docs/stages.md from the stages' capabilities; with --check it only says whether the page is up to date."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from jumpforward.stages_command import FEATURES, cells
from scripts.generated_page import write_or_check
from shared_runtime.policy import StageSpec
from stages import all_stages

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
    return write_or_check("stages.md", page(all_stages()), "the stages say", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
