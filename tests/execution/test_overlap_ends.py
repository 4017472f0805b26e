"""Ends while the next pass is on its way: nothing twice, every slot back once, the others untouched."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import ConstraintError
from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.policy import AcceptResult, SampledRow
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from tests.conformance.harness import Ask
from tests.conftest import EngineFactory
from tests.execution.overlap_runs import COMPANY, drive, each_scheme, settings, told, traced, warmed

LONG = SamplingParams(max_new_tokens=16, ignore_eos=True)
BY_STOP_STRING = Ask("one two", None, SamplingParams(max_new_tokens=30, stop=tuple("abcdefghijklmnop")))
BY_GRAMMAR = Ask("x", Constraint.regex("[0-9]{3}"), SamplingParams(max_new_tokens=30))


def _grammar_ends_at(engine: Engine, length: int) -> None:
    """The grammar says by itself that it is over, no stop token needed: what only the results can tell."""
    original = engine.parts.policy.accept

    def accept(batch: ScheduleBatch, rows: Sequence[SampledRow]) -> list[AcceptResult]:
        return [AcceptResult(1, terminated=True) if len(row.req.output_ids) == length - 1 else result
                for row, result in zip(rows, original(batch, rows), strict=True)]

    engine.parts.policy.accept = accept  # type: ignore[method-assign]


@each_scheme
def test_a_wasted_row_is_seen_in_the_trace_and_costs_its_request_nothing(stage: int,
                                                                        make_engine: EngineFactory) -> None:
    engine = warmed(make_engine(**settings(stage, trace=True)), [BY_GRAMMAR])
    _grammar_ends_at(engine, 2)
    records = traced(engine, [BY_GRAMMAR, Ask("free", None, LONG)])
    ended = next(record for record in records if record.ended)
    after = records[records.index(ended) + 1]
    wasted = next(part for part in after.requests if part.rid == ended.ended[0])
    assert ended.overlap.on
    assert (wasted.sampled, wasted.tokens, wasted.n_allowed) == (False, [], None)
    assert [part.sampled for part in after.requests if part.rid != ended.ended[0]] == [True]
    assert after.grammars_filled == []


@each_scheme
def test_passes_are_counted_as_in_the_plain_loop(stage: int, make_engine: EngineFactory) -> None:
    plain, overlapped = (drive(make_engine(**settings(stage, overlap=overlap)), [BY_STOP_STRING])[0]
                         for overlap in (False, True))
    assert plain.finish_reason == "stop"
    assert told(overlapped) == told(plain)


@each_scheme
@pytest.mark.parametrize("ask", [BY_STOP_STRING, BY_GRAMMAR], ids=["stop string", "grammar"])
def test_a_wasted_rows_slot_comes_back_exactly_once(stage: int, ask: Ask, make_engine: EngineFactory) -> None:
    engine = warmed(make_engine(**settings(stage, kv_pool_tokens=64, prefix_cache="naive")), [ask])
    _grammar_ends_at(engine, 2)
    taken: Counter[int] = Counter()
    given: Counter[int] = Counter()
    pool = engine.parts.memory.pool
    alloc, free = pool.alloc, pool.free

    def counting_alloc(n: int) -> Tensor | None:
        slots = alloc(n)
        taken.update([] if slots is None else slots.tolist())
        return slots

    def counting_free(slots: Tensor) -> None:
        given.update(slots.tolist())
        free(slots)

    pool.alloc, pool.free = counting_alloc, counting_free  # type: ignore[method-assign]
    drive(engine, [ask, Ask("free", None, LONG)])
    assert taken == given
    assert pool.available == 64


@each_scheme
def test_nothing_is_masked_accepted_or_released_twice(stage: int, make_engine: EngineFactory) -> None:
    """Also not after the end: museum row 39 asked an ended grammar for one more mask."""
    engine = make_engine(**settings(stage))
    _grammar_ends_at(engine, 6)
    policy = engine.parts.policy
    ended: set[str] = set()
    masked: list[tuple[str, int]] = []
    accepted: list[tuple[str, int]] = []
    fill, accept, release = policy.fill_mask, policy.accept, policy.release  # type: ignore[attr-defined]

    def fill_mask(batch: ScheduleBatch, positions: Sequence[int]) -> object:
        rows = [(req.rid, position) for req, position in zip(batch.sampled, positions, strict=True)]
        assert ended.isdisjoint(rid for rid, _ in rows)
        masked.extend(rows)
        return fill(batch, positions)

    def accepting(batch: ScheduleBatch, rows: Sequence[SampledRow]) -> list[AcceptResult]:
        assert ended.isdisjoint(row.req.rid for row in rows)
        accepted.extend((row.req.rid, len(row.req.output_ids)) for row in rows)
        return accept(batch, rows)

    def releasing(req: object, reason: str) -> None:
        assert req.rid not in ended  # type: ignore[attr-defined]
        ended.add(req.rid)  # type: ignore[attr-defined]
        release(req, reason)  # type: ignore[arg-type]

    policy.fill_mask, policy.accept, policy.release = fill_mask, accepting, releasing  # type: ignore[attr-defined, method-assign]
    results = drive(engine, COMPANY)
    assert max(Counter(masked).values()) == 1
    assert max(Counter(accepted).values()) == 1
    assert len(ended) == len(results)


@each_scheme
@pytest.mark.parametrize("turn", range(1, 9))
def test_an_abort_in_flight_ends_it_at_the_next_turn(stage: int, turn: int, make_engine: EngineFactory) -> None:
    """With what it had; the others get the tokens they get without it, and its memory comes back."""
    company = [Ask("free", None, LONG), Ask("bound", Constraint.regex("[0-9]{30}"), LONG)]
    whole = [result.token_ids for result in drive(make_engine(**settings(stage)), company)]
    engine = warmed(make_engine(**settings(stage, kv_pool_tokens=128)), company)
    names = [engine.add_request(ask.prompt, sampling=ask.sampling, constraint=ask.constraint)[0] for ask in company]
    results: dict[str, Result] = {}
    steps = 0
    while engine.has_work:
        if steps == turn:
            live = next(req for req in engine.scheduler.queues.in_memory if req.rid == names[1])
            had = len(live.output_ids)
            engine.abort(names[1])
            engine.abort(names[1])
        engine.step()
        steps += 1
        engine.check_integrity()
        results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    aborted = results[names[1]]
    assert (aborted.finish_reason, aborted.token_ids) == ("abort", whole[1][:had])
    assert results[names[0]].token_ids == whole[0]
    assert engine.parts.memory.room == 128


@each_scheme
def test_a_stream_that_is_closed_leaves_nothing_behind(stage: int, make_engine: EngineFactory) -> None:
    engine = make_engine(**settings(stage, kv_pool_tokens=64))
    stream = engine.stream("one two three", sampling=LONG)
    for _ in range(4):
        next(stream)
    stream.close()
    engine.check_integrity()
    while engine.has_work:
        engine.step()
    assert engine.parts.memory.room == 64
    assert len(engine.generate_one("one two three", sampling=LONG).token_ids) == 16


@each_scheme
@pytest.mark.parametrize("bad_pass", [0, 1, 4])
def test_logits_that_are_no_numbers_end_their_request_alone(stage: int, bad_pass: int,
                                                            make_engine: EngineFactory) -> None:
    """In the event scheme the next pass is in line already, with a place for the token that never came."""
    company = [Ask("free", None, LONG), Ask("bound", Constraint.regex("[0-9]{30}"), LONG), Ask("more", None, LONG)]
    whole = [result.token_ids for result in drive(make_engine(**settings(stage)), company)]
    engine = warmed(make_engine(**settings(stage, kv_pool_tokens=128)), company)
    forward, passes = engine.parts.runner.forward, 0

    def spoiled(batch: ForwardBatch) -> Tensor:
        nonlocal passes
        logits = forward(batch)
        if passes == bad_pass:
            logits[1] = torch.nan
        passes += 1
        return logits

    engine.parts.runner.forward = spoiled  # type: ignore[method-assign]
    results = drive(engine, company)
    assert results[1].finish_reason == "error"
    assert "NaN" in str(results[1].error)
    assert results[1].token_ids == whole[1][:bad_pass]
    assert [results[0].token_ids, results[2].token_ids] == [whole[0], whole[2]]
    assert engine.parts.memory.room == 128


@each_scheme
def test_a_token_that_the_grammar_refuses_ends_its_request_alone(stage: int, make_engine: EngineFactory) -> None:
    company = [Ask("free", None, LONG), BY_GRAMMAR]
    whole = [result.token_ids for result in drive(make_engine(**settings(stage)), company)]
    engine = warmed(make_engine(**settings(stage, kv_pool_tokens=64)), company)
    original = engine.parts.policy.accept

    def accept(batch: ScheduleBatch, rows: Sequence[SampledRow]) -> list[AcceptResult]:
        results = original(batch, rows)
        return [AcceptResult(0, error=ConstraintError("refused")) if len(row.req.output_ids) == 1 else result
                for row, result in zip(rows, results, strict=True)]

    engine.parts.policy.accept = accept  # type: ignore[method-assign]
    free, bound = drive(engine, company)
    assert (bound.finish_reason, bound.token_ids) == ("error", whole[1][:1])
    assert free.token_ids == whole[0]
    assert engine.parts.memory.room == 64


def test_with_delayed_sampling_no_row_is_wasted_that_is_sure_to_end(make_engine: EngineFactory) -> None:
    """The tokens are known before the next pass is launched; with the event only the length limit is."""
    stop = Ask("x", Constraint.choice(["yes"]), SamplingParams(max_new_tokens=9))
    limit = Ask("y", None, SamplingParams(max_new_tokens=3, ignore_eos=True))
    wasted = {}
    for stage in (4, 5):
        engine = warmed(make_engine(**settings(stage, trace=True)), [stop])
        records = traced(engine, [stop, limit, Ask("free", None, LONG)])
        wasted[stage] = sum(not part.sampled for record in records for part in record.requests)
    assert wasted == {4: 1, 5: 0}


@each_scheme
def test_the_policy_is_asked_on_the_schedulers_thread_alone(stage: int, make_engine: EngineFactory) -> None:
    engine = make_engine(**settings(stage))
    threads: set[int] = set()
    for name in ("admit", "poll", "fill_mask", "accept", "release", "describe"):
        original = getattr(engine.parts.policy, name)

        def noting(*arguments: object, original: Callable[..., object] = original) -> object:
            threads.add(threading.get_ident())
            return original(*arguments)

        setattr(engine.parts.policy, name, noting)
    drive(engine, COMPANY[:3])
    assert threads == {threading.get_ident()}
