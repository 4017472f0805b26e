"""UTF-8 from its definition: what the bytes at the end of a text may still become, and which characters exist."""

from __future__ import annotations

from functools import lru_cache

# The well-formed sequences of the Unicode Standard, table 3-7: the range of each byte in turn.
SEQUENCES: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0x00, 0x7F),),
    ((0xC2, 0xDF), (0x80, 0xBF)),
    ((0xE0, 0xE0), (0xA0, 0xBF), (0x80, 0xBF)),
    ((0xE1, 0xEC), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xED, 0xED), (0x80, 0x9F), (0x80, 0xBF)),
    ((0xEE, 0xEF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF0, 0xF0), (0x90, 0xBF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF1, 0xF3), (0x80, 0xBF), (0x80, 0xBF), (0x80, 0xBF)),
    ((0xF4, 0xF4), (0x80, 0x8F), (0x80, 0xBF), (0x80, 0xBF)),
)
FULL = ((0, 0x10FFFF),)

Intervals = tuple[tuple[int, int], ...]


@lru_cache(maxsize=4096)
def tail_intervals(tail: bytes) -> Intervals:
    """The code points whose encoding begins with `tail`, which is shorter than they are; () when there are none.

    Of each well-formed sequence that agrees with the tail, the bytes to come run over their whole ranges, so each
    gives one interval.
    """
    found: list[tuple[int, int]] = []
    for ranges in SEQUENCES:
        if len(tail) < len(ranges) and all(low <= byte <= high
                                           for byte, (low, high) in zip(tail, ranges, strict=False)):
            rest = ranges[len(tail):]
            found.append((_code_point(tail + bytes(low for low, _ in rest)),
                          _code_point(tail + bytes(high for _, high in rest))))
    return tuple(found)


def split_text(data: bytes) -> tuple[str, bytes] | None:
    """The complete characters of `data` and the 0-3 bytes of a character begun; None when it is no UTF-8."""
    for cut in range(min(3, len(data)) + 1):
        head, tail = data[:len(data) - cut], data[len(data) - cut:]
        if tail and not tail_intervals(tail):
            continue
        try:
            return head.decode("utf-8"), tail
        except UnicodeDecodeError:
            continue
    return None


@lru_cache(maxsize=16)
def spellable_intervals(spellable_bytes: frozenset[int]) -> Intervals:
    """The code points all of whose UTF-8 bytes are in the set: ascending, disjoint intervals."""
    runs: list[tuple[int, int]] = []
    for ranges in SEQUENCES:
        heads = [b""]
        for low, high in ranges[:-1]:
            heads = [head + bytes([byte]) for head in heads for byte in range(low, high + 1)
                     if byte in spellable_bytes]
        low, high = ranges[-1]
        ends = byte_runs([byte for byte in range(low, high + 1) if byte in spellable_bytes])
        runs += [(_code_point(head + bytes([first])), _code_point(head + bytes([last])))
                 for head in heads for first, last in ends]
    merged: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if merged and merged[-1][1] + 1 == first:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return tuple(merged)


def byte_runs(values: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as closed runs of neighbours."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][1] + 1 == value:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs


def meet(left: Intervals, right: Intervals) -> Intervals:
    """The intersection of two ascending lists of disjoint intervals."""
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        first, last = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if first <= last:
            found.append((first, last))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def _code_point(encoded: bytes) -> int:
    return ord(encoded.decode("utf-8"))
