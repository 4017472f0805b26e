"""What is graded: the same with more threads, again and again, and the museum's own check."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import (
    a_failed_build_wakes_everybody,
    a_pattern_is_built_once,
    a_slow_pattern_holds_up_nobody_else,
    stage_1_answers,
    the_museum_is_content,
    waiting_has_an_end,
)

CASES = [
    *each(a_pattern_is_built_once, {f"{count} threads at once": (count,) for count in (2, 3, 16, 32)}),
    *each(a_failed_build_wakes_everybody, {f"a build that fails while {count} wait": (count,) for count in (1, 16)}),
    Case("a slow pattern, and another one behind it", a_slow_pattern_holds_up_nobody_else),
    Case("two callers of a build that does not return", waiting_has_an_end),
    Case("the museum's row 1 on stage 1 with your cache", the_museum_is_content),
    Case("stage 1 with your cache, once more", stage_1_answers),
]
