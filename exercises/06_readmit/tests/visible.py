"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import all_is_the_caches, nothing_happens_twice, picture, stage_2_runs

ONE = ([5, 6, 7], [8, 9])

CASES = [
    *each(all_is_the_caches, {
        "one request": ([ONE], False),
        "the same text again, afterwards": ([ONE, ONE], False),
        "the same text twice, at the same time": ([ONE, ONE], True),
    }),
    Case("a request that is released twice", nothing_happens_twice),
    *each(stage_2_runs, {"stage 2 with your function": ("[a-z]{2}: true, false", 1)}),
]

__all__ = ["CASES", "picture"]
