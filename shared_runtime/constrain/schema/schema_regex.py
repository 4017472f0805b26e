"""The regex of a JSON schema: a grammar library writes each level of it, and what the library gets wrong we write.

The library is asked for one level at a time, with a mark where each part of the level belongs. So it is known how long
the whole will be before anything that long is made: a library repeats the items of an array, and arrays in arrays
double with each level.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.constrain.regex.regex_dialect import MAX_PATTERN, normalise
from shared_runtime.constrain.regex.regex_tree import (
    Alternate,
    Concat,
    Empty,
    Node,
    Repeat,
    alternate,
    concat,
    render,
    repeat,
)
from shared_runtime.constrain.schema.regular_schema import LeftOut, regular_schema
from shared_runtime.constrain.schema.schema_leaves import Schema
from shared_runtime.constrain.schema.schema_parts import MARKS, Leaf, Part, mark
from shared_runtime.constrain.schema.whitespace import Layout, lay_out
from shared_runtime.errors import GrammarTimeoutError, JumpforwardError
from shared_runtime.policy import Whitespace

MAX_SCHEMA = 300_000
"""Most characters of a schema. A list of values of that length takes three seconds to be written as a regex."""

_BLANK = "\ufdd0"
_QUOTED_MARK = re.compile(f'"([{mark(0)}-\U000fffff])"')


def schema_regex(source: str, whitespace: Whitespace, library: Callable[[str, str], str], *,
                 library_depth: str) -> str:
    """The regex of a JSON schema: at most `MAX_PATTERN` characters, of a schema of at most `MAX_SCHEMA`.

    Args:
        source: the schema as JSON text.
        whitespace: the layout.
        library: from (a schema as JSON text, a mark for all blanks) to the library's regex.
        library_depth: what the library would do with a schema that nests without end, for the refusal.

    Raises:
        ConstraintError: the schema is none, or needs what a regex or the library cannot hold, or is too large.
    """
    if len(source) > MAX_SCHEMA:
        raise GrammarTimeoutError(f"the schema has {len(source):,} characters, and {MAX_SCHEMA:,} are the most",
                                  where="json_schema", fix="list fewer values, or describe less")
    part, _ = regular_schema(source, Layout.of(whitespace), library_depth=library_depth)
    writer = _Writer(library, whitespace)
    try:
        tree, _ = writer.write(part)
        text = render(tree)
    except RecursionError:
        raise GrammarTimeoutError("the schema is nested too deep", where="json_schema") from None
    writer.check(len(text))
    return text


def what_is_left_out(source: str) -> frozenset[LeftOut]:
    """What the regex of a schema is without; nothing where it is no schema, or none for a regex."""
    try:
        return regular_schema(source, Layout.of("compact"), library_depth="")[1]
    except JumpforwardError:
        return frozenset()


@dataclass
class _Writer:
    library: Callable[[str, str], str]
    whitespace: Whitespace
    frames: dict[str, Node] = field(default_factory=dict)

    def write(self, part: Part) -> tuple[Node, int]:
        """The tree of a part, and how many characters and classes it has, counts not written out."""
        if isinstance(part, Leaf):
            return part.tree, _size(part.tree, ())
        children = [self.write(child) for child in part.children]
        frame = self._frame(part.frame, len(children)) if isinstance(part.frame, dict) else part.frame
        size = _size(frame, [size for _, size in children])
        self.check(size)
        return _filled(frame, [tree for tree, _ in children]), size

    def check(self, size: int) -> None:
        """Raises GrammarTimeoutError past `MAX_PATTERN`."""
        if size > MAX_PATTERN:
            raise GrammarTimeoutError(
                f"the regex of the schema would have {size:,} characters, and {MAX_PATTERN:,} are the most",
                where="json_schema", fix="nest less (an array's items are written twice), list fewer values, or make "
                                         "properties required")

    def _frame(self, schema: Schema, children: int) -> Node:
        """What the library makes of a level, with the marks still in it."""
        # Without a required property it writes, for each one, all that may stand before it.
        if schema.get("type") == "object" and not schema["required"]:
            self.check(children * children)
        text = json.dumps(schema)
        if text not in self.frames:
            regex = lay_out(self.library(text, _BLANK), _BLANK, self.whitespace)
            regex = _QUOTED_MARK.sub(r"\1", regex)
            self.check(len(regex))
            self.frames[text] = normalise(regex).tree
        return self.frames[text]


def _marks(chars: CharSet) -> list[int]:
    """The children that a class stands for; none for any other class. A class of marks has nothing else in it."""
    if not chars.intervals or chars.intervals[0][0] < MARKS:
        return []
    return [code - MARKS for first, last in chars.intervals for code in range(first, last + 1)]


def _size(node: Node, children: Sequence[int]) -> int:
    match node:
        case Empty():
            return 0
        case CharSet():
            return sum(children[index] for index in _marks(node)) if children and _marks(node) else 1
        case Concat(nodes) | Alternate(nodes):
            return sum(_size(inner, children) for inner in nodes)
        case Repeat(item):
            return _size(item, children)


def _filled(node: Node, children: Sequence[Node]) -> Node:
    match node:
        case Empty():
            return node
        case CharSet():
            marks = _marks(node)
            return alternate(children[index] for index in marks) if children and marks else node
        case Concat(nodes):
            return concat(_filled(inner, children) for inner in nodes)
        case Alternate(nodes):
            return alternate(_filled(inner, children) for inner in nodes)
        case Repeat(item, low, high):
            return repeat(_filled(item, children), low, high)
