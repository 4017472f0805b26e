"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case
from shared_runtime.constraint import Constraint

from .common import (
    a_bad_pattern_is_refused,
    copies_begin_at_the_beginning,
    masks_along_a_walk,
    picture,
    stage_4_answers,
    the_end_ends_it,
    the_way_back,
    two_compile_at_once,
    what_is_forced,
)

CASES = [
    *each(masks_along_a_walk, {"masks: digits": ("[0-9]{2,4}", 1), "masks: words": ("(name|age): [a-c]+", 2)}),
    *each(the_end_ends_it, {"the end": ("ab?", "a")}),
    *each(the_way_back, {"the way back: three tokens": ("[a-z]{5}", "abcde", [1, 2])}),
    Case("copies", copies_begin_at_the_beginning),
    *each(what_is_forced, {"forced: text": ("x: true, (a|b)", b"x", b"", ": true, ")}),
    *each(a_bad_pattern_is_refused, {"a bad pattern": ("ab(c", 2)}),
    *each(two_compile_at_once, {"two threads at once": (Constraint.regex("[0-9]+"), Constraint.regex("ab|cd"))}),
    *each(stage_4_answers, {"stage 4 with your backend": ([Constraint.regex("[0-9]{3}: true, name")],)}),
]

__all__ = ["CASES", "picture"]
