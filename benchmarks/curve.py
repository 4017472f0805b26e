"""How a cost grows with a size: points of a curve, and by which power the last of them grow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LINEAR = 1.1
"""A time that grows by a power up to this counts as linear: a power of 1, and what a machine adds by its moods."""


@dataclass(frozen=True, slots=True)
class Point:
    """A cost at one size.

    Attributes:
        curve: which cost, one of `plan.CURVES`. of: of what: an engine or a stage. size: where on the curve.
        counts: what no machine changes. ms: the fastest, which other work on the machine disturbs least, and
            percentiles.
    """

    curve: str
    of: str
    size: int
    counts: dict[str, int]
    ms: dict[str, float]

    @property
    def key(self) -> str:
        """What was measured, in one word: a ledger holds each once."""
        return f"growth/{self.curve}/{self.of}/{self.size}"


def power(points: Sequence[Point], value: str = "min") -> float | None:
    """The power of the size that a time or a count grows by over the last decade; None of one point.

    By least squares over the logarithms of the points from a tenth of the largest size on; 1 is linear, 0 constant.
    Sizes of less than a decade are all used. A count of 0 is taken as 1.
    """
    ordered = sorted(points, key=lambda one: one.size)
    if not ordered:
        return None
    last = [one for one in ordered if 10 * one.size >= ordered[-1].size]
    pairs = [(math.log(one.size), math.log(max(_value(one, value), 1e-6))) for one in last]
    mean_x, mean_y = (sum(pair[axis] for pair in pairs) / len(pairs) for axis in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in pairs)
    return sum((x - mean_x) * (y - mean_y) for x, y in pairs) / spread if spread else None


def _value(point: Point, name: str) -> float:
    return point.ms[name] if name in point.ms else float(max(1, point.counts[name]))
