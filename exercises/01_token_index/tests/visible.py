"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each

from .common import BYTES, an_engine_answers, picture, the_index_is_that_of_stage_1

CASES = [
    *each(the_index_is_that_of_stage_1, {
        "two texts, one the beginning of the other": ("ab|abc", BYTES),
        "digits, tokens of one and of two": ("[0-9]{3}", BYTES),
        "a circle": ("(ab)+", BYTES),
        "a token that ends inside a character": ("é", BYTES),
        "a token that is two halves of two characters": ("霍霍", BYTES),
    }),
    *each(an_engine_answers, {"stage 1 with your index, choosing words": ("(abc|nam)[0-9]",)}),
]

__all__ = ["CASES", "picture"]
