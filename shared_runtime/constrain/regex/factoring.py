"""The same language with common beginnings written once: `1500|1501|...|1999` becomes `1[5-9][0-9][0-9]`.

For libraries whose work grows with the number of branches. An enumeration of a schema has hundreds.
"""

from __future__ import annotations

from itertools import count

from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.constrain.regex.regex_tree import Alternate, Concat, Node, Repeat, alternate, concat, repeat


def factored(node: Node) -> Node:
    """The tree with its alternatives merged by what they begin with, and then by what they go on with.

    Raises:
        RecursionError: the tree, or the alternatives branch one inside of the other, too deep.
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
    groups: dict[Node, list[tuple[Node, ...]]] = {}
    for branch in dict.fromkeys(branches):  # alternatives may have become one
        parts = branch.parts if isinstance(branch, Concat) else (branch,)
        groups.setdefault(parts[0], []).append(parts)
    ways: dict[Node, list[Node]] = {}
    for first, group in groups.items():
        # All that a group shares at once: a level of recursion per branching, and not per character.
        same = next(index for index in count(1) if len({parts[index:index + 1] for parts in group}) > 1
                    or len(group[0]) <= index)
        rest = concat([*group[0][1:same], _merged([concat(parts[same:]) for parts in group])] if len(group) > 1
                      else group[0][1:])
        ways.setdefault(rest, []).append(first)
    return alternate(_one_step(firsts, rest) for rest, firsts in ways.items())


def _one_step(firsts: list[Node], rest: Node) -> Node:
    """The ways that go on alike: their single characters are one class."""
    chars = [first for first in firsts if isinstance(first, CharSet)]
    others = [concat([first, rest]) for first in firsts if not isinstance(first, CharSet)]
    return alternate([*others, concat([alternate(chars), rest])] if chars else others)
