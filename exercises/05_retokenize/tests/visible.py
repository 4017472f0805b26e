"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each

from .common import picture, stage_2_answers, the_ids_are_those_of_stage_2

CASES = [
    *each(the_ids_are_those_of_stage_2, {
        "words that are tokens": ("x", "name"),
        "control tokens in the prompt": ([0, 0, 0, 0], "ab"),
        "a blank that grows together with a letter": ("a ", "b"),
        "letters that grow together": ("a", "bc"),
        "ids that no tokenizer would give": ([3 + 94, 3 + 95], "name"),
    }),
    *each(stage_2_answers, {"stage 2 with your function": ("x", "[a-z]{2}: true, name", "nq")}),
]

__all__ = ["CASES", "picture"]
