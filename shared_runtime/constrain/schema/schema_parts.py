"""What a JSON schema is made of, for a regex: levels that a grammar library writes, and leaves that we write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.constrain.regex.regex_tree import EMPTY, Node, concat, repeat
from shared_runtime.constrain.schema.schema_leaves import Schema, other_keys
from shared_runtime.constrain.schema.whitespace import Layout
from shared_runtime.errors import UnsatisfiableConstraintError


@dataclass(frozen=True)
class Leaf:
    """A value, or a property's name, of which we write all: `tree`. `kinds`: the types of its values."""

    kinds: frozenset[str]
    tree: Node


@dataclass(frozen=True)
class Level:
    """A value that is made of others.

    Attributes:
        kinds: the types of its values, `number` for integers too.
        frame: how it is written around `children`, of which each has its `mark`: a schema for the library, with
            `{"const": mark}` in place of each child's schema and `mark` in place of each name; or a tree.
    """

    kinds: frozenset[str]
    frame: Schema | Node
    children: tuple[Part, ...] = ()


Part = Leaf | Level

MARKS = 0xF0000


def mark(index: int) -> str:
    """What stands for a level's child of that number: a character that nothing else in a frame has."""
    return chr(MARKS + index)


def kinds_of(types: Iterable[str]) -> frozenset[str]:
    """The types of values, with one name for numbers: an integer is a number, too."""
    return frozenset("number" if kind == "integer" else kind for kind in types)


EMPTY_ARRAY = Level(kinds_of(["array"]), {"type": "array", "items": {"type": "null"}, "maxItems": 0})


def object_of(properties: Sequence[tuple[Part, Part, bool]]) -> Part:
    """An object of (name, value, whether it is required), in this order."""
    described = {mark(2 * index): {"const": mark(2 * index + 1)} for index in range(len(properties))}
    required = [mark(2 * index) for index, (_, _, needed) in enumerate(properties) if needed]
    return Level(kinds_of(["object"]), {"type": "object", "properties": described, "required": required},
                 tuple(part for name, value, _ in properties for part in (name, value)))


def any_of(ways: Sequence[Part]) -> Part:
    """A value of any of the ways."""
    if len(ways) == 1:
        return ways[0]
    return Level(frozenset[str]().union(*(way.kinds for way in ways)),
                 {"anyOf": [{"const": mark(index)} for index in range(len(ways))]}, tuple(ways))


def possible(ways: Iterable[Callable[[], Part]]) -> list[Part]:
    """The ways that some value fits; raises what the last one says where there is none."""
    read: list[Part] = []
    last: UnsatisfiableConstraintError | None = None
    for way in ways:
        try:
            read.append(way())
        except UnsatisfiableConstraintError as error:
            last = error
    if not read and last is not None:
        raise last
    return read


def other_properties(names: Iterable[str], value: Part, layout: Layout) -> tuple[Part, Part, bool]:
    """Properties but `names`, at least one: as a last property, which is the first's name and all that follows."""
    key = Leaf(frozenset(), other_keys(names))
    one, name = CharSet.char(MARKS), CharSet.char(MARKS + 1)
    more = concat([layout.comma, name, layout.colon, one])
    return key, Level(frozenset(), concat([one, repeat(more, 0, None)]), (value, key)), True


def tuple_of(first: Sequence[Part], other: Part | None, low: int, high: int | None, layout: Layout) -> Part:
    """Items each with a schema of its own, then those of `other`; of all, between `low` and `high`."""
    comma, count = layout.comma, len(first)
    rest: Node = EMPTY
    if other is not None:
        rest = repeat(concat([comma, CharSet.char(MARKS + count)]), max(0, low - count),
                      None if high is None else high - count)
    for index in reversed(range(count)):
        item = concat([comma if index else EMPTY, CharSet.char(MARKS + index), rest])
        rest = item if index < max(low, 1) else repeat(item, 0, 1)
    inside = Level(frozenset(), rest, (*first, *([] if other is None else [other])))
    some = Level(kinds_of(["array"]), {"type": "array", "prefixItems": [{"const": mark(0)}]}, (inside,))
    if low > 0:
        return some
    return any_of([EMPTY_ARRAY, some]) if first else EMPTY_ARRAY
