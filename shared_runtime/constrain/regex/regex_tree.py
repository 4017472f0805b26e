"""The tree of a normalised regex, the rules that keep it in normal form, and its text.

Five kinds of node: `Empty` (the empty text), `CharSet` (one character), `Concat`, `Alternate`, `Repeat`.
Build them with `concat`, `alternate` and `repeat`, which drop branches that match nothing; the tree is then
either the single node `NOTHING`, or it has `NOTHING` nowhere inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from shared_runtime.constrain.regex.charset import EVERYTHING, NOT_NEWLINE, NOTHING, CharSet


@dataclass(frozen=True, slots=True)
class Empty:
    """The empty text, and nothing else."""


@dataclass(frozen=True, slots=True)
class Concat:
    """One part after the other; at least two, none of them `Empty` or `Concat`."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternate:
    """One of several branches; at least two, none of them `Empty` or `Alternate`, at most one `CharSet`."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item` between `low` and `high` times; `high` is None for no upper bound, else at least 1."""

    item: Node
    low: int
    high: int | None


Node: TypeAlias = Empty | CharSet | Concat | Alternate | Repeat

EMPTY = Empty()


def concat(parts: Iterable[Node]) -> Node:
    """The parts in a row, flattened; `NOTHING` when a part matches nothing."""
    flat: list[Node] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        if isinstance(part, Concat):
            flat.extend(part.parts)
        elif not isinstance(part, Empty):
            flat.append(part)
    if not flat:
        return EMPTY
    return flat[0] if len(flat) == 1 else Concat(tuple(flat))


def alternate(branches: Iterable[Node]) -> Node:
    """Any of the branches. Single characters become one class, an empty branch becomes an optional rest."""
    chars, rest, optional = NOTHING, dict[Node, None](), False
    for branch in branches:
        for option in branch.branches if isinstance(branch, Alternate) else (branch,):
            if isinstance(option, CharSet):
                chars = chars | option
            elif isinstance(option, Empty):
                optional = True
            else:
                rest[option] = None
    options: list[Node] = [*rest] if chars == NOTHING else [chars, *rest]
    if not options:
        return EMPTY if optional else NOTHING
    node = options[0] if len(options) == 1 else Alternate(tuple(options))
    return repeat(node, 0, 1) if optional else node


def repeat(item: Node, low: int, high: int | None) -> Node:
    """`item` between `low` and `high` times (None: no bound). `(x*){2,5}` is `x*`, `(x+){2,5}` is `x{2,}`."""
    if high == 0 or isinstance(item, Empty):
        return EMPTY
    if item == NOTHING:
        return EMPTY if low == 0 else NOTHING
    if isinstance(item, Repeat) and item.low <= 1 and item.high is None:
        return Repeat(item.item, item.low * low, None)
    if isinstance(item, Repeat) and (item.low, item.high) == (0, 1):
        return Repeat(item.item, 0, high)
    return item if (low, high) == (1, 1) else Repeat(item, low, high)


def render(node: Node, *, negated_classes: bool = True) -> str:
    """The regex text of a tree: literal characters, classes, `* + ? {n,m}`, `(...)` and `|`; nothing else.

    Args:
        node: any tree but `NOTHING`, which no regex text can say.
        negated_classes: True writes a class by its complement where that is the smaller set (`[^\\n]`), which
            parsers that list each character of a class need; a reader must then leave the surrogates out.
            False writes every class as ascending ranges with the surrogates cut out.

    Raises:
        ValueError: the tree matches nothing.
    """
    if node == NOTHING:
        raise ValueError("a language without any text has no regex")
    return _render(node, negated_classes)


def _render(node: Node, negated: bool) -> str:
    match node:
        case Empty():
            return ""
        case CharSet():
            return _render_set(node, negated)
        case Concat(parts):
            return "".join(_group(part, negated) if isinstance(part, Alternate) else _render(part, negated)
                           for part in parts)
        case Alternate(branches):
            return "|".join(_render(branch, negated) for branch in branches)
        case Repeat(item, low, high):
            body = _render(item, negated) if isinstance(item, CharSet) else _group(item, negated)
            return body + _quantifier(low, high)


def _group(node: Node, negated: bool) -> str:
    return f"({_render(node, negated)})"


def _quantifier(low: int, high: int | None) -> str:
    match (low, high):
        case (0, None):
            return "*"
        case (1, None):
            return "+"
        case (0, 1):
            return "?"
        case (_, None):
            return f"{{{low},}}"
        case _:
            return f"{{{low}}}" if low == high else f"{{{low},{high}}}"


def _render_set(chars: CharSet, negated: bool) -> str:
    if chars.single is not None:
        return escape(chr(chars.single))
    if not negated:
        return f"[{_ranges(chars)}]"
    if chars == EVERYTHING:
        # "[^]" is an error or a literal, depending on the reader.
        return f"([^{_ranges(NOT_NEWLINE.complement())}]|\n)"
    others = chars.complement()
    return f"[^{_ranges(others)}]" if len(others) < len(chars) else f"[{_ranges(chars)}]"


def _ranges(chars: CharSet) -> str:
    return "".join(_class_char(first) if first == last else
                   _class_char(first) + ("-" if last > first + 1 else "") + _class_char(last)
                   for first, last in chars.intervals)


def _class_char(code_point: int) -> str:
    char = chr(code_point)
    # Characters are never repeated inside a class, so no reader sees the set operators && -- ~~ ||.
    return "\\" + char if char in "\\]^-[" else char


def escape(text: str) -> str:
    """A pattern that matches `text` alone: a backslash before each of `\\ . ^ $ * + ? ( ) [ ] { } |`."""
    return "".join("\\" + char if char in "\\.^$*+?()[]{}|" else char for char in text)
