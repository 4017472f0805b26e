"""Sets of characters as code-point intervals: the leaves of a normalised regex."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LAST_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CharSet:
    """A set of characters: code points without the surrogates, which no UTF-8 text holds.

    Attributes:
        intervals: closed intervals (first, last), ascending, disjoint and never adjacent, so equal sets
            compare equal. () is the empty set, and as a regex the language without any text.
    """

    intervals: tuple[Interval, ...]

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> CharSet:
        """The union of closed intervals in any order, surrogates cut out.

        Raises:
            ValueError: an interval is reversed or leaves the code space.
        """
        merged: list[Interval] = []
        for first, last in sorted(intervals):
            if not 0 <= first <= last <= LAST_CODE_POINT:
                raise ValueError(f"no interval of code points: {first:#x}-{last:#x}")
            for low, high in _without_surrogates(first, last):
                if merged and low <= merged[-1][1] + 1:
                    merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
                else:
                    merged.append((low, high))
        return cls(tuple(merged))

    @classmethod
    def char(cls, code_point: int) -> CharSet:
        """The set of one code point; empty for a surrogate."""
        return cls(()) if SURROGATES[0] <= code_point <= SURROGATES[1] else cls(((code_point, code_point),))

    def __contains__(self, code_point: int) -> bool:
        return any(first <= code_point <= last for first, last in self.intervals)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __or__(self, other: CharSet) -> CharSet:
        return CharSet.of(self.intervals + other.intervals)

    def __sub__(self, other: CharSet) -> CharSet:
        return (self.complement() | other).complement()

    def complement(self) -> CharSet:
        """Every character that is not in this set."""
        gaps: list[Interval] = []
        start = 0
        for first, last in self.intervals:
            if start < first:
                gaps.append((start, first - 1))
            start = last + 1
        if start <= LAST_CODE_POINT:
            gaps.append((start, LAST_CODE_POINT))
        return CharSet.of(gaps)

    def fold_ascii(self) -> CharSet:
        """The set with both cases of each ASCII letter in it: what `(?i)` means under `re.ASCII`."""
        folded = list(self.intervals)
        for first, last in self.intervals:
            for (low, high), shift in ((_UPPER, 32), (_LOWER, -32)):
                start, end = max(first, low), min(last, high)
                if start <= end:
                    folded.append((start + shift, end + shift))
        return CharSet.of(folded)

    @property
    def single(self) -> int | None:
        """The one code point of a set of one, else None."""
        if len(self.intervals) == 1 and self.intervals[0][0] == self.intervals[0][1]:
            return self.intervals[0][0]
        return None


def _without_surrogates(first: int, last: int) -> list[Interval]:
    low, high = SURROGATES
    parts = [(first, min(last, low - 1)), (max(first, high + 1), last)]
    return [(start, end) for start, end in parts if start <= end]


_UPPER: Interval = (ord("A"), ord("Z"))
_LOWER: Interval = (ord("a"), ord("z"))

NOTHING = CharSet(())
EVERYTHING = NOTHING.complement()
DIGIT = CharSet.of([(ord("0"), ord("9"))])
WORD = CharSet.of([(ord("0"), ord("9")), _UPPER, (ord("_"), ord("_")), _LOWER])
SPACE = CharSet.of([(0x09, 0x0D), (0x20, 0x20)])
NOT_NEWLINE = CharSet.char(0x0A).complement()
