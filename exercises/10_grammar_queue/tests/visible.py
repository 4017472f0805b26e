"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import (
    a_compile_has_a_time_limit,
    a_failure_is_an_outcome,
    a_slow_grammar_holds_up_nobody,
    all_who_wait_get_the_grammar,
    picture,
    stage_4_answers,
    who_has_gone_does_not_come_back,
)

CASES = [
    *each(all_who_wait_get_the_grammar, {"one request": (1,), "three requests, one grammar": (3,)}),
    Case("a slow grammar in front of others", a_slow_grammar_holds_up_nobody),
    Case("a grammar that fails", a_failure_is_an_outcome),
    Case("a grammar that takes too long", a_compile_has_a_time_limit),
    Case("a request that goes away", who_has_gone_does_not_come_back),
    *each(stage_4_answers, {"stage 4 with your queue": (["[0-9]{3}", "("],)}),
]

__all__ = ["CASES", "picture"]
