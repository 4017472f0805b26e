"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each

from .common import picture, the_counts_come_true, the_crossover_comes_true

CASES = [
    *each(the_counts_come_true, {
        "nothing is forced": ("abc", 2),
        "the story of the page, without jumps": ("aX<012>Y", 99),
        "the story of the page, with jumps": ("aX<012>Y", 2),
        "one forced byte": ("a<0>c", 2),
        "ids that grow together": ("n<ame>x", 2),
    }),
    *each(the_crossover_comes_true, {"one neighbour": (1,)}),
]

__all__ = ["CASES", "picture"]
