"""What the learner sees: the symptom."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import (
    answers_go_on_where_they_were,
    picture,
    release_is_idempotent,
    the_grammar_is_where_the_text_is,
    what_was_written_stays,
)

CASES = [
    *each(the_grammar_is_where_the_text_is, {
        "no jump yet, retracted": ("[a-z]{3}-middle-[a-z]{12}", ["x"]),
        "a jump, retracted": ("[a-z]{3}-middle-[a-z]{12}", ["xyz", "q"]),
    }),
    *each(what_was_written_stays, {"what was sent, after a retraction": ("[a-z]{3}-middle-[a-z]{12}", ["xyz", "q"])}),
    Case("a request that has ended", release_is_idempotent),
    *each(answers_go_on_where_they_were, {"the complaint, in stage 2": ("[a-z]{3}-middle-[a-z]{12}", 3, 40)}),
]

__all__ = ["CASES", "picture"]
