"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each

from .common import picture, stage_5_answers, the_logits_are_masked

CASES = [
    *each(the_logits_are_masked, {
        "one row, one word": ([[0, 3, 17]], 32, None),
        "the sign bit": ([[31], [30, 31]], 64, None),
        "a width that is no multiple of 32": ([[1, 33], [39]], 40, None),
        "of three rows the second is not listed": ([[5], [], [6]], 40, [0, 2]),
    }),
    *each(stage_5_answers, {"stage 5 with your function": ("[0-9]{4}",)}),
]

__all__ = ["CASES", "picture"]
