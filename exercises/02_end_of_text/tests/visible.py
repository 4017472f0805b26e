"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each

from .common import (
    an_answer_ends_where_it_may,
    an_impossible_regex_is_refused,
    letters,
    picture,
    the_masks_are_those_of_stage_1,
)

CASES = [
    *each(the_masks_are_those_of_stage_1, {
        "the end, and only at the end": ("ab", letters(b"a", b"b")),
        "a text that may end or go on": ("ab?", letters(b"a", b"b")),
        "a token that leads nowhere": ("ax|b", letters(b"a", b"b")),
        "ids past the last token": ("a+", letters(b"a", b"aa", padding=5)),
    }),
    *each(an_impossible_regex_is_refused, {"a regex that no tokens spell": ("ax", letters(b"a", b"b"))}),
    *each(an_answer_ends_where_it_may, {"stage 1 with your masks": ("ab(cde)?", 0)}),
]

__all__ = ["CASES", "picture"]
