"""What the tests of overlap share: engines of both schemes, requests that meet each other, and a look at the trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.trace import StepRecord
from tests.conformance.harness import Ask

SCHEMES = [4, 5]
each_scheme = pytest.mark.parametrize("stage", SCHEMES, ids=["event", "delayed"])

ENDLESS = SamplingParams(max_new_tokens=12, ignore_eos=True)

COMPANY = (
    Ask("one two three", Constraint.regex("[a-z ]{3,30}"), SamplingParams(max_new_tokens=14)),
    Ask("one two", None, SamplingParams(max_new_tokens=14, temperature=1.0, seed=3, stop=("e", "th"))),
    Ask("dates: ", Constraint.regex("([0-9]{2} ){4}x"), SamplingParams(max_new_tokens=30, top_logprobs=2)),
    Ask("x", Constraint.choice(["yes", "no", "never"]), SamplingParams(max_new_tokens=20, temperature=1.0, seed=8)),
    Ask("a", Constraint.regex("("), SamplingParams(max_new_tokens=4)),
    Ask("numbers", Constraint.regex("[0-9]{4}"), SamplingParams(max_new_tokens=2, prompt_logprobs=True)),
    Ask("again and again", None, SamplingParams(max_new_tokens=9, repetition_penalty=1.4, frequency_penalty=0.5,
                                                logprobs=True)),
    Ask("twice", Constraint.regex("[a-f]{2}(, [a-f]{2})*"), SamplingParams(max_new_tokens=10, n=2, temperature=0.8)),
)
"""Every way to end, several to choose; some share a prefix."""


def settings(stage: int, **more: object) -> dict[str, object]:
    """Of an engine that overlaps, unless `more` says otherwise."""
    return {"stage": stage, "backend": "xgrammar", "overlap": True, "exact": True} | more


def drive(engine: Engine, asks: Sequence[Ask], each_turn: Callable[[int], None] | None = None) -> list[Result]:
    """All results, in order, books checked after every turn; `each_turn` is called with its number before it."""
    names = [name for ask in asks
             for name in engine.add_request(ask.prompt, sampling=ask.sampling, constraint=ask.constraint)]
    results: dict[str, Result] = {}
    turn = 0
    while engine.has_work:
        if each_turn is not None:
            each_turn(turn)
        engine.step()
        turn += 1
        engine.check_integrity()
        results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    return [results[name] for name in names]


def warmed(engine: Engine, asks: Sequence[Ask]) -> Engine:
    """An engine that has compiled the grammars of `asks`, so that no clock decides who meets whom."""
    for ask in asks:
        engine.generate("w", constraint=ask.constraint, sampling=SamplingParams(max_new_tokens=1))
    while engine.has_work:
        engine.step()
    return engine


def told(result: Result) -> tuple[object, ...]:
    """What must be the same in every loop: all but times."""
    return (result.text, result.token_ids, result.origins, result.finish_reason, result.matched, str(result.error),
            result.warnings, result.logprobs, result.prompt_logprobs, result.counts)


def traced(engine: Engine, asks: Sequence[Ask]) -> list[StepRecord]:
    """The records of all turns."""
    for ask in asks:
        engine.add_request(ask.prompt, sampling=ask.sampling, constraint=ask.constraint)
    records = []
    while engine.has_work:
        record = engine.step()
        assert record is not None
        records.append(record)
        engine.take_events()
    return records


def order(records: Sequence[StepRecord]) -> dict[tuple[str, int], int]:
    """(event, step) -> its number in the order of all events."""
    return {(event.name, event.step): event.seq for record in records for event in record.events}
