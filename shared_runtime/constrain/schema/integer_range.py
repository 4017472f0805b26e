"""The integers between two bounds, as JSON writes them: a regex over their digits instead of a list."""

from __future__ import annotations

from itertools import takewhile

from shared_runtime.constrain.regex.charset import DIGIT, NOTHING, CharSet
from shared_runtime.constrain.regex.regex_tree import EMPTY, Node, alternate, concat, repeat

_MINUS = CharSet.char(ord("-"))
_NONZERO = CharSet.of([(ord("1"), ord("9"))])


def integer_range(low: int | None, high: int | None) -> Node:
    """The integers from `low` to `high`, both included; None: no bound. `NOTHING` where there is none.

    Each in its one usual form: no sign before 0, no zeros in front, no fraction.
    """
    if low is not None and high is not None and low > high:
        return NOTHING
    ways: list[Node] = []
    if low is None or low < 0:
        nearest = 1 if high is None or high >= 0 else -high
        ways.append(concat([_MINUS, _natural(nearest, None if low is None else -low)]))
    if high is None or high >= 0:
        ways.append(_natural(0 if low is None else max(low, 0), high))
    return alternate(ways)


def _natural(low: int, high: int | None) -> Node:
    """The numbers from `low` (at least 0) to `high`, by their count of digits."""
    shortest = len(str(low))
    if high is None:
        return alternate([_same_length(str(low), "9" * shortest), _of_lengths(shortest + 1, None)])
    longest = len(str(high))
    if shortest == longest:
        return _same_length(str(low), str(high))
    return alternate([_same_length(str(low), "9" * shortest), _of_lengths(shortest + 1, longest - 1),
                      _same_length("1" + "0" * (longest - 1), str(high))])


def _of_lengths(least: int, most: int | None) -> Node:
    """Every number of so many digits, at least two."""
    if most is not None and most < least:
        return NOTHING
    return concat([_NONZERO, repeat(DIGIT, least - 1, None if most is None else most - 1)])


def _same_length(low: str, high: str) -> Node:
    """The texts of digits between two of the same length."""
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=True))))
    head = concat(_digits(digit, digit) for digit in low[:same])
    if same == len(low):
        return head
    first, last, rest = low[same], high[same], len(low) - same - 1
    ways: list[Node] = []
    if low[same + 1:].strip("0"):
        ways.append(concat([_digits(first, first), _from(low[same + 1:])]))
        first = chr(ord(first) + 1)
    if high[same + 1:].strip("9"):
        ways.append(concat([_digits(last, last), _up_to(high[same + 1:])]))
        last = chr(ord(last) - 1)
    if first <= last:
        ways.append(concat([_digits(first, last), repeat(DIGIT, rest, rest)]))
    return concat([head, alternate(ways)])


def _from(low: str) -> Node:
    return _same_length(low, "9" * len(low)) if low else EMPTY


def _up_to(high: str) -> Node:
    return _same_length("0" * len(high), high) if high else EMPTY


def _digits(first: str, last: str) -> CharSet:
    return CharSet.of([(ord(first), ord(last))])
