"""Requests that are retracted, and the checks of exercise 15."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from exercises.bench import bench, in_place
from jumpforward.exercises.case import Row, Wrong, expect
from shared_runtime.constraint import Constraint
from shared_runtime.schedule_batch import ScheduleBatch
from stages import stage2_jump_forward
from tests.museum.bench import request
from tests.museum.jumps import ask, preferring
from tests.museum.policies import feed, ready
from tests.museum.rows import row_06_answer_starts_again as row_6


def the_grammar_is_where_the_text_is(part: Any, pattern: str, texts: list[str]) -> None:
    """Texts are fed one by one, with a chance to jump after each; then memory runs out."""
    with bench() as made:
        policy, tokenizer = part(made.context()), made.tokenizer
        req = request(Constraint.regex(pattern))
        ready(policy, req)
        for text in texts:
            feed(policy, req, *tokenizer.encode(text))
            policy.before_decode(ScheduleBatch.about_to_decode([req]))
        policy.retract(req)
        state: Any = req.grammar
        spelled = tokenizer.vocabulary.decode(req.output_ids)
        wanted = state.fsm.dfa.walk(0, spelled)
    where = f"regex {pattern!r}, fed {texts}, then retracted: the output is {spelled.decode()!r}"
    expect(state.state == wanted, f"{where}, the state behind it is {wanted}, the grammar's is {state.state}: "
                                  "it is not where the text is")
    expect(state.accepted == len(req.output_ids) == len(req.origins),
           f"{where}: {len(req.output_ids)} tokens, the grammar counts {state.accepted}, there are "
           f"{len(req.origins)} origins")


def what_was_written_stays(part: Any, pattern: str, texts: list[str]) -> None:
    """It may have been sent."""
    with bench() as made:
        policy, decode = part(made.context()), made.tokenizer.decode
        req = request(Constraint.regex(pattern))
        ready(policy, req)
        for text in texts:
            feed(policy, req, *made.tokenizer.encode(text))
            policy.before_decode(ScheduleBatch.about_to_decode([req]))
        written = decode(req.output_ids)
        policy.retract(req)
    expect(decode(req.output_ids) == written,
           f"regex {pattern!r}, fed {texts}: the output was {written!r}, then it was retracted, and is "
           f"{decode(req.output_ids)!r}: the user may have read the rest already")


def release_is_idempotent(part: Any) -> None:
    """Twice, and of a request without a grammar."""
    with bench() as made:
        policy, req = part(made.context()), request(Constraint.regex("ab"))
        ready(policy, req)
        for one in (req, req, request()):
            policy.release(one, "abort")
            expect(one.grammar is None, "after release the request still has a grammar")


def answers_go_on_where_they_were(part: Any, pattern: str, count: int, pool: int) -> None:
    """More requests than there is memory for, in stage 2."""
    spec = replace(stage2_jump_forward.STAGE, build=part)
    with bench() as made, in_place(stage2_jump_forward, "STAGE", spec):
        engine = made.engine(2, kv_pool_tokens=pool, new_token_ratio=0.05)
        results = made.run(engine, [ask(pattern, max_new_tokens=30, logit_bias=preferring(engine, "qrs"))] * count)
    if not sum(result.metrics.retractions for result in results):
        raise Wrong("nothing was retracted: the case is not the one that it should be")
    for result in results:
        expect(result.error is None, f"in stage 2, {count} requests in {pool} slots: {result.error}")
        expect(re.fullmatch(pattern, result.text) is not None,
               f"in stage 2, {count} requests in {pool} slots: the answer starts again in its middle: {result.text!r}")


def the_museum_is_content(part: Any) -> None:
    """Row 6's own check."""
    with bench() as made:
        row_6.a_retracted_request_goes_on_where_it_was(part, made)


def picture(part: Any) -> list[Row]:
    """Text and state after a jump and a retraction."""
    rows = []
    for texts in (["x"], ["xyz"], ["xyz", "q"]):
        with bench() as made:
            policy, tokenizer = part(made.context()), made.tokenizer
            req = request(Constraint.regex(row_6.PATTERN))
            ready(policy, req)
            for text in texts:
                feed(policy, req, *tokenizer.encode(text))
                policy.before_decode(ScheduleBatch.about_to_decode([req]))
            policy.retract(req)
            state: Any = req.grammar
            spelled = tokenizer.vocabulary.decode(req.output_ids)
        rows.append(Row(f"fed {texts}, retracted: {spelled.decode()!r}", f"state {state.state}",
                        f"state {state.fsm.dfa.walk(0, spelled)}"))
    return rows
