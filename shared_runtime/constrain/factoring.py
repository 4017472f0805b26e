"""The same language with common beginnings written once: `1500|1501|...|1999` becomes `1[5-9][0-9][0-9]`.

For libraries whose work grows with the number of branches. An enumeration of a schema has hundreds.
"""

from __future__ import annotations

from shared_runtime.constrain.charset import CharSet
from shared_runtime.constrain.regex_tree import EMPTY, Alternate, Concat, Node, Repeat, alternate, concat, repeat


def factored(node: Node) -> Node:
    """The tree with its alternatives merged by what they begin with, and then by what they go on with.

    Raises:
        RecursionError: the tree, or a literal text in an alternative, is too long.
    """
    match node:
        case Concat(parts):
            return concat(map(factored, parts))
        case Repeat(item, low, high):
            return repeat(factored(item), low, high)
        case Alternate(branches):
            return _merged(list(map(factored, branches)))
        case _:
            return node


def _merged(branches: list[Node]) -> Node:
    rests: dict[Node, list[Node]] = {}
    for branch in branches:
        first, rest = (branch.parts[0], concat(branch.parts[1:])) if isinstance(branch, Concat) else (branch, EMPTY)
        rests.setdefault(first, []).append(rest)
    ways: dict[Node, list[Node]] = {}
    for first, ends in rests.items():
        ways.setdefault(_merged(ends) if len(ends) > 1 else ends[0], []).append(first)
    return alternate(_one_step(firsts, rest) for rest, firsts in ways.items())


def _one_step(firsts: list[Node], rest: Node) -> Node:
    """The ways that go on alike: their single characters are one class."""
    chars = [first for first in firsts if isinstance(first, CharSet)]
    others = [concat([first, rest]) for first in firsts if not isinstance(first, CharSet)]
    return alternate([*others, concat([alternate(chars), rest])] if chars else others)
