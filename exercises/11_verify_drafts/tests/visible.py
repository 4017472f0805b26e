"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each

from .common import drafts_change_no_token, picture, the_masks_are_those_of_the_runtime, the_run_is

CASES = [
    *each(the_run_is, {
        "every guess was right": ("abcd", "abc", "abcd"),
        "the second guess was wrong": ("axcd", "abc", "ax"),
        "the first guess was wrong": ("xbcd", "abc", "x"),
        "the text ends in the middle": ("a.cd", "a.c", "a."),
    }),
    *each(the_masks_are_those_of_the_runtime, {
        "no draft": ("[a-c]x", "", ""),
        "a draft that the grammar follows": ("ab(c|d)x", "", "abc"),
        "a draft that it refuses half-way": ("ab(c|d)x", "a", "bxx"),
        "a draft with a stop token": ("ab?", "", "a.b"),
    }),
    *each(drafts_change_no_token, {"stage 5, a guess that is right": ("(name|age): [0-9]{2}", "name: 4", "nam")}),
]

__all__ = ["CASES", "picture"]
