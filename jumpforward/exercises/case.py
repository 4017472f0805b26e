"""What the tests of an exercise are made of: cases that say in words what differs, and rows of a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class Wrong(AssertionError):
    """The learner's part does something else than it should; the message says what, for this one input."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is checked.

    Attributes:
        name: what is asked, in words; unique within its set. run: called with the learner's part; raises `Wrong`.
    """

    name: str
    run: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a picture: what is looked at, what the learner's part makes of it, and what should come out."""

    what: str
    yours: str
    expected: str


def expect(holds: bool, message: str) -> None:
    """Raise `Wrong` with the message unless `holds`."""
    if not holds:
        raise Wrong(message)


def expect_equal(got: object, wanted: object, where: str) -> None:
    """Raise `Wrong` unless they are equal, showing both."""
    if got != wanted:
        raise Wrong(f"{where}: yours gives {shown(got)}, expected {shown(wanted)}")


def plain(value: Any) -> Any:
    """The value with numbers of NumPy as Python's, made of Python's own types alone, so that `==` means what it says.

    Raises:
        Wrong: there is something else in it.
    """
    import numpy as np  # here: the command line reads this file, too, and needs no NumPy

    if isinstance(value, np.generic):
        return value.item()
    kind = type(value)
    if kind is dict:
        return {plain(key): plain(one) for key, one in value.items()}
    if kind in (list, tuple, set, frozenset):
        return kind(map(plain, value))
    if value is None or kind in (bool, int, float, str, bytes):
        return value
    raise Wrong(f"your answer holds a {kind.__module__}.{kind.__name__}; return Python's own types (int, list, ...)")


def shown(value: object, most: int = 160) -> str:
    """A value in a line, cut where it gets long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]} ... ({len(text)} characters)"


def sides(got: Iterable[int], wanted: Iterable[int], names: Sequence[str]) -> str:
    """What one set of token ids has and the other has not, with what the tokens spell; "" when they are equal."""
    have, want = set(got), set(wanted)
    parts = []
    for verb, ids in (("allows", sorted(have - want)), ("forbids", sorted(want - have))):
        if ids:
            named = ", ".join(f"{token_id} ({names[token_id] if token_id < len(names) else 'no token'})"
                              for token_id in ids[:4])
            parts.append(f"yours {verb} {named}{f' and {len(ids) - 4} more' if len(ids) > 4 else ''}")
    return "; ".join(parts)
