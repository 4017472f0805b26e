"""A byte automaton by derivatives: the state is the regex that the rest of the text still has to match.

A row of characters is a chain of `Seq`, so patterns of several hundred characters exceed Python's recursion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, TypeAlias

from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.constrain.regex.regex_tree import Alternate, Concat, Empty, Node, Repeat
from tests.oracles.utf8 import SEQUENCES

ByteRanges: TypeAlias = "tuple[tuple[int, int], ...]"


@dataclass(frozen=True)
class Never:
    """No text at all."""

    nullable: ClassVar[bool] = False


@dataclass(frozen=True)
class Nil:
    """The empty text."""

    nullable: ClassVar[bool] = True


@dataclass(frozen=True)
class Bytes:
    """A fixed number of bytes, each in its range: one row of the table of well-formed UTF-8, or part of one."""

    ranges: ByteRanges
    nullable: ClassVar[bool] = False


@dataclass(frozen=True)
class Seq:
    """`first`, then `rest`."""

    first: Rest
    rest: Rest

    @cached_property
    def nullable(self) -> bool:
        """Whether the empty text is in it."""
        return self.first.nullable and self.rest.nullable


@dataclass(frozen=True)
class Either:
    """A union, of a set so that order and repeats do not matter."""

    options: frozenset[Rest]

    @cached_property
    def nullable(self) -> bool:
        """Whether the empty text is in it."""
        return any(option.nullable for option in self.options)


@dataclass(frozen=True)
class Many:
    """`item` between `low` and `high` times."""

    item: Rest
    low: int
    high: int | None

    @cached_property
    def nullable(self) -> bool:
        """Whether the empty text is in it."""
        return self.low == 0 or self.item.nullable


Rest: TypeAlias = Never | Nil | Bytes | Seq | Either | Many


def byte_regex(node: Node) -> Rest:
    """The regex over bytes of a regex over characters."""
    match node:
        case Empty():
            return Nil()
        case CharSet(intervals):
            return _either([Bytes(ranges) for first, last in intervals for ranges in utf8_ranges(first, last)])
        case Concat(parts):
            rest: Rest = Nil()
            for part in reversed(parts):
                rest = _seq(byte_regex(part), rest)
            return rest
        case Alternate(branches):
            return _either([byte_regex(branch) for branch in branches])
        case Repeat(item, low, high):
            return _many(byte_regex(item), low, high)


def utf8_ranges(first: int, last: int) -> list[ByteRanges]:
    """An interval of code points as products of byte ranges."""
    found: list[ByteRanges] = []
    for ranges in SEQUENCES:
        low = ord(bytes(start for start, _ in ranges).decode())
        high = ord(bytes(end for _, end in ranges).decode())
        if max(first, low) <= min(last, high):
            found += _products(chr(max(first, low)).encode(), chr(min(last, high)).encode())
    return found


def _products(low: bytes, high: bytes) -> list[ByteRanges]:
    """The byte strings between two of one length, as products of ranges; continuation bytes are 80-BF."""
    if len(low) == 1:
        return [((low[0], high[0]),)]
    if low[0] == high[0]:
        return [((low[0], low[0]), *rest) for rest in _products(low[1:], high[1:])]
    least, most = b"\x80" * (len(low) - 1), b"\xbf" * (len(low) - 1)
    found = [((low[0], low[0]), *rest) for rest in _products(low[1:], most)]
    if low[0] + 1 < high[0]:
        found.append(((low[0] + 1, high[0] - 1), *(((0x80, 0xBF),) * len(least))))
    return found + [((high[0], high[0]), *rest) for rest in _products(least, high[1:])]


def _seq(first: Rest, rest: Rest) -> Rest:
    if isinstance(first, Never) or isinstance(rest, Never):
        return Never()
    if isinstance(first, Nil):
        return rest
    if isinstance(first, Seq):
        return _seq(first.first, _seq(first.rest, rest))
    return first if isinstance(rest, Nil) else Seq(first, rest)


def _either(options: list[Rest]) -> Rest:
    flat: set[Rest] = set()
    for option in options:
        flat |= option.options if isinstance(option, Either) else {option}
    flat -= {Never()}
    if not flat:
        return Never()
    return next(iter(flat)) if len(flat) == 1 else Either(frozenset(flat))


def _many(item: Rest, low: int, high: int | None) -> Rest:
    if high == 0 or isinstance(item, Nil):
        return Nil()
    if isinstance(item, Never):
        return Nil() if low == 0 else Never()
    return Many(item, low, high)


@dataclass
class Derivatives:
    """The automaton, made as it is walked; each pair of state and byte is worked out once."""

    _known: dict[tuple[Rest, int], Rest] = field(default_factory=dict)

    def walk(self, state: Rest, data: bytes) -> Rest:
        """The state after some bytes."""
        for byte in data:
            key = (state, byte)
            if key not in self._known:
                self._known[key] = derivative(state, byte)
            state = self._known[key]
            if isinstance(state, Never):
                break
        return state


def derivative(state: Rest, byte: int) -> Rest:
    """What must follow once `byte` was read (Brzozowski 1964)."""
    match state:
        case Never() | Nil():
            return Never()
        case Bytes(ranges):
            if not ranges[0][0] <= byte <= ranges[0][1]:
                return Never()
            return Bytes(ranges[1:]) if len(ranges) > 1 else Nil()
        case Seq():
            through = _seq(derivative(state.first, byte), state.rest)
            return _either([through, derivative(state.rest, byte)]) if state.first.nullable else through
        case Either(options):
            return _either([derivative(option, byte) for option in options])
        case Many(item, low, high):
            left = None if high is None else high - 1
            return _seq(derivative(item, byte), _many(item, max(low - 1, 0), left))
