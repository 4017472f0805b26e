"""A pattern cut down to the texts that the vocabulary can spell, for engines that do not look ahead so far.

Some libraries offer the first half of a text whose second half no token spells; what follows is a dead end. Taking
such texts out of the language before compiling mends that, as long as every byte that occurs in a token is a token
by itself (byte-level vocabularies). Where a byte occurs inside longer tokens only, a dead end is still possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from shared_runtime.constrain.regex.charset import NOTHING, CharSet, Interval
from shared_runtime.constrain.regex.regex_tree import Alternate, Concat, Empty, Node, Repeat, alternate, concat, repeat
from shared_runtime.errors import UnsatisfiableConstraintError
from shared_runtime.vocabulary import Vocabulary

# Per length of a UTF-8 sequence: lead bytes, the bits that they carry, and the smallest code point of that length.
_LENGTHS = ((0x00, 0x7F, 0, 0x0), (0xC2, 0xDF, 1, 0x80), (0xE0, 0xEF, 2, 0x800), (0xF0, 0xF4, 3, 0x10000))


@dataclass(frozen=True)
class Speller:
    """What a vocabulary can spell. Immutable; may be shared between threads."""

    vocabulary: Vocabulary

    @cached_property
    def unspellable(self) -> CharSet:
        """The characters with a byte that no token holds."""
        known = self.vocabulary.spellable_bytes
        found: list[Interval] = []
        for first, last, tail, floor in _LENGTHS:
            for lead in range(first, last + 1):
                start = (lead if tail == 0 else lead & 0x3F >> tail) << 6 * tail
                found += _lacking(start, tail, lead in known, known, floor)
        return CharSet.of(found)

    def restrict(self, tree: Node, less: CharSet = NOTHING) -> Node:
        """The language of `tree` without its unspellable texts, and without those that hold a character of `less`.

        Raises:
            UnsatisfiableConstraintError: nothing is left; the message names a character and the bytes it lacks.
        """
        without = self.unspellable | less
        left = _restrict(tree, without)
        if left == NOTHING:
            lost = next(chars for chars in _classes(tree) if chars - without == NOTHING)
            char = chr(lost.intervals[0][0])
            missing = [f"0x{byte:02x}" for byte in char.encode() if byte not in self.vocabulary.spellable_bytes]
            why = f"no token spells the byte {', '.join(missing)}" if missing else "it needs an escape here"
            raise UnsatisfiableConstraintError(f"every text needs {char!r} or the like, but {why}",
                                               where="constraint", fix="leave the character out")
        return left


def _restrict(tree: Node, without: CharSet) -> Node:
    match tree:
        case Empty():
            return tree
        case CharSet():
            return tree - without
        case Concat(parts):
            return concat(_restrict(part, without) for part in parts)
        case Alternate(branches):
            return alternate(_restrict(branch, without) for branch in branches)
        case Repeat(item, low, high):
            return repeat(_restrict(item, without), low, high)


def _lacking(start: int, tail: int, spelled: bool, known: frozenset[int], floor: int) -> Iterator[Interval]:
    """The code points behind a prefix that has `tail` bytes to come, and cannot be spelled."""
    end = min(start + (1 << 6 * tail) - 1, 0x10FFFF)
    if end < floor or start > 0x10FFFF:
        return
    if not spelled:
        yield max(start, floor), end
    elif tail and any(byte not in known for byte in range(0x80, 0xC0)):
        for index in range(64):
            yield from _lacking(start + (index << 6 * (tail - 1)), tail - 1, 0x80 + index in known, known, floor)


def _classes(tree: Node) -> Iterator[CharSet]:
    match tree:
        case CharSet():
            yield tree
        case Concat(nodes) | Alternate(nodes):
            for node in nodes:
                yield from _classes(node)
        case Repeat(item):
            yield from _classes(item)
