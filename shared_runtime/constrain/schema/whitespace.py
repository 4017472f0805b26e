"""How much blank space the `any` option leaves between JSON tokens: the same on every backend.

Enough for an indented document, and bounded: upstream's run was unbounded for two weeks (#1277 to #1438), and a model
that likes blank lines never came to an end (museum row 32).
"""

from __future__ import annotations

from dataclasses import dataclass

from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constrain.regex.regex_tree import Node
from shared_runtime.policy import Whitespace

MOST_BLANKS = 16

BLANKS = f"[ \\t\\n\\r]{{0,{MOST_BLANKS}}}"
"""The same as a regex."""


def lay_out(regex: str, mark: str, whitespace: Whitespace) -> str:
    """A regex of JSON with the blanks of a layout in place of each `mark`.

    `compact` is one blank behind `,` and `:` and none elsewhere; `any` is a bounded run of them everywhere.
    """
    if whitespace == "any":
        return regex.replace(mark, BLANKS)
    # A comma that goes with an optional property has its mark in front alone: the one behind is outside of the group.
    regex = regex.replace(mark + ",", ", ").replace("," + mark, ", ")
    return regex.replace(":" + mark, ": ").replace(mark, "")


@dataclass(frozen=True)
class Layout:
    """What stands between JSON tokens: inside of brackets, between items, and behind a name."""

    pad: Node
    comma: Node
    colon: Node

    @classmethod
    def of(cls, whitespace: Whitespace) -> Layout:
        """The layout of an option."""
        mark = "\ufdd0"
        return cls(*(normalise(lay_out(text, mark, whitespace)).tree for text in (
            mark, f"{mark},{mark}", f"{mark}:{mark}")))
