"""What the learner sees: the symptom."""

from __future__ import annotations

from exercises.bench import each

from .common import a_free_neighbour_says_what_it_says_alone, picture, rows_that_nobody_fills_allow_all

CASES = [
    *each(rows_that_nobody_fills_allow_all, {
        "one step": (70, [(2, 0, 1)]),
        "two steps": (70, [(2, 0, 1), (2, 0)]),
    }),
    *each(a_free_neighbour_says_what_it_says_alone, {"the complaint, in stage 5": (2,)}),
]

__all__ = ["CASES", "picture"]
