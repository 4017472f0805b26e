"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import (
    a_failed_build_wakes_everybody,
    a_pattern_is_built_once,
    a_slow_pattern_holds_up_nobody_else,
    picture,
    stage_1_answers,
    waiting_has_an_end,
)

CASES = [
    *each(a_pattern_is_built_once, {"one thread, asking twice": (1,), "eight threads at once": (8,)}),
    *each(a_failed_build_wakes_everybody, {"a build that fails while two wait": (2,)}),
    Case("a slow pattern and another one", a_slow_pattern_holds_up_nobody_else),
    Case("a build that does not return", waiting_has_an_end),
    Case("stage 1 with your cache", stage_1_answers),
]

__all__ = ["CASES", "picture"]
