"""What the loop owes its policy, its memory and its books; each test would notice one line of the loop gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.kv_memory import KVMemory
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool
from shared_runtime.metrics import RequestMetrics
from shared_runtime.policy import COMPILING, READY, Admission
from shared_runtime.radix_cache import RadixCache
from shared_runtime.request import Request
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.waiting_queue import NewTokenEstimator
from tests.conftest import EngineFactory

LONG = "The quick brown fox jumps over the lazy dog and runs away " * 3
ENDLESS = SamplingParams(max_new_tokens=40, ignore_eos=True)


def _drain(engine: Engine) -> dict[str, Result]:
    results: dict[str, Result] = {}
    while engine.has_work:
        engine.step()
        engine.check_integrity()
        results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    return results


def _counted(engine: Engine, name: str) -> list[tuple[object, ...]]:
    """Note every call of a method of the engine's policy."""
    calls: list[tuple[object, ...]] = []
    policy = engine.parts.policy
    original: Callable[..., object] = getattr(policy, name)

    def counting(*arguments: object) -> object:
        calls.append(arguments)
        return original(*arguments)

    setattr(policy, name, counting)
    return calls


def test_every_end_releases_the_grammar_once(make_engine: EngineFactory) -> None:
    engine = make_engine()
    released = _counted(engine, "release")
    bounds = (Constraint.regex("[0-9]{2}"), Constraint.regex("[a-z]{90}"), Constraint.regex("("), None)
    names = [engine.add_request("x", sampling=SamplingParams(max_new_tokens=4), constraint=bound)[0]
             for bound in bounds]
    engine.step()
    engine.abort(names[3])
    _drain(engine)
    reasons = {call[0].rid: call[1] for call in released if isinstance(call[0], Request)}
    assert reasons == dict(zip(names, ("stop", "length", "error", "abort"), strict=True))
    assert len(released) == 4


def test_retraction_is_told_to_the_policy(make_engine: EngineFactory) -> None:
    engine = make_engine(kv_pool_tokens=80, new_token_ratio=0.1)
    retracted = _counted(engine, "retract")
    for index in range(4):
        engine.add_request(f"Number {index}", sampling=ENDLESS)
    results = _drain(engine)
    assert len(retracted) == sum(result.metrics.retractions for result in results.values()) > 0


def test_a_retracted_request_comes_back_before_newer_ones(make_engine: EngineFactory) -> None:
    engine = make_engine(kv_pool_tokens=80, new_token_ratio=0.1, trace=True)
    names = [engine.add_request(f"Number {index}", sampling=ENDLESS)[0] for index in range(5)]
    order: list[str] = []
    while engine.has_work:
        record = engine.step()
        assert record is not None
        order += record.ended
        for victim in record.retracted:
            waiting = [name for name in record.waiting if name not in record.retracted]
            assert all(record.waiting.index(victim) < record.waiting.index(name) for name in waiting)
        engine.take_events()
    assert order == names


def test_a_request_that_is_being_prefilled_may_be_retracted_too(make_engine: EngineFactory) -> None:
    """Its first chunks hold memory that older, running requests need."""
    engine = make_engine(kv_pool_tokens=90, new_token_ratio=0.05, chunked_prefill_size=4, trace=True)
    old = engine.add_request("One two three", sampling=SamplingParams(max_new_tokens=60, ignore_eos=True))[0]
    for _ in range(12):
        engine.step()
    new = engine.add_request(LONG, sampling=SamplingParams(max_new_tokens=30, ignore_eos=True))[0]
    results = _drain(engine)
    assert len(results[old].token_ids) == 60
    assert len(results[new].token_ids) == 30


def test_prompt_scores_are_whole_after_a_prefill_that_began_again(make_engine: EngineFactory) -> None:
    params = SamplingParams(max_new_tokens=3, prompt_logprobs=True, ignore_eos=True)
    reference = make_engine(exact=True).generate_one(LONG, sampling=params)
    engine = make_engine(exact=True, chunked_prefill_size=4)
    name, = engine.add_request(LONG, sampling=params)
    for _ in range(3):
        engine.step()
    chunked = engine.scheduler.queues.chunked
    assert chunked is not None
    engine.scheduler._builder.retract(chunked)
    result = _drain(engine)[name]
    assert result.prompt_logprobs == reference.prompt_logprobs
    assert result.metrics.retractions == 1


def test_a_chunk_is_shared_before_its_prompt_is_whole(make_engine: EngineFactory) -> None:
    engine = make_engine(chunked_prefill_size=8)
    engine.add_request(LONG, sampling=SamplingParams(max_new_tokens=1))
    engine.step()
    ids = engine.tokenizer.encode(LONG)
    assert engine.parts.memory.cache.match(ids).slots.numel() == 8
    _drain(engine)


def test_admission_keeps_room_for_the_answer_of_who_comes(make_engine: EngineFactory) -> None:
    engine = make_engine(kv_pool_tokens=100, new_token_ratio=1.0, trace=True)
    for index in range(2):
        engine.add_request(f"Number {index}", sampling=SamplingParams(max_new_tokens=60, ignore_eos=True))
    record = engine.step()
    assert record is not None
    assert (len(record.running), len(record.waiting)) == (1, 1)
    assert all(result.metrics.retractions == 0 for result in _drain(engine).values())


def test_an_abort_while_compiling_is_told_and_what_comes_back_is_dropped(make_engine: EngineFactory) -> None:
    engine = make_engine()
    policy, late = engine.parts.policy, list[tuple[Request, Admission]]()

    def admit(req: Request) -> Admission:
        late.append((req, READY))
        return COMPILING

    policy.admit = admit  # type: ignore[method-assign]  # a stage that compiles beside the loop
    policy.poll = lambda: late  # type: ignore[method-assign]
    cancelled = _counted(engine, "cancel")
    name, = engine.add_request("x", sampling=SamplingParams(max_new_tokens=4), constraint=Constraint.regex("[0-9]{2}"))
    engine.abort(name)
    results = _drain(engine)
    engine.step()
    assert results[name].finish_reason == "abort"
    assert [call[0] for call in cancelled] == [name]
    assert not engine.scheduler.queues.running
    assert len(engine.scheduler.queues.waiting) == 0


def test_min_new_tokens_is_lowered_with_the_answer(make_engine: EngineFactory) -> None:
    engine = make_engine()
    context = engine.parts.model.context_length
    name, = engine.add_request(prompt_ids=[17] * (context - 3),
                               sampling=SamplingParams(max_new_tokens=8, min_new_tokens=6))
    result = _drain(engine)[name]
    assert len(result.token_ids) <= 3
    assert result.error is None


def test_a_stop_string_with_the_grammars_last_token_is_named(make_engine: EngineFactory) -> None:
    result = make_engine().generate_one("x", sampling=SamplingParams(max_new_tokens=20, stop=("7",)),
                                        constraint=Constraint.regex("127"))
    assert (result.finish_reason, result.matched, result.text) == ("stop", "7", "12")


def test_the_trace_counts_what_is_in_the_pool_after_the_pass(make_engine: EngineFactory) -> None:
    engine = make_engine(trace=True)
    engine.add_request("one two three", sampling=SamplingParams(max_new_tokens=3, ignore_eos=True))
    lengths = []
    while engine.has_work:
        record = engine.step()
        assert record is not None
        lengths += [part.kv_len for part in record.requests]
    prompt = len(engine.tokenizer.encode("one two three"))
    assert lengths == [prompt, prompt + 1, prompt + 2]
    engine.take_events()


def test_the_estimate_falls_while_nothing_is_retracted_and_comes_back() -> None:
    estimator, req = NewTokenEstimator(0.7), _request(100)
    assert estimator.reserve([req]) == 70
    for _ in range(NewTokenEstimator.DECAY_STEPS // 2):
        estimator.decoded()
    assert estimator.reserve([req]) == pytest.approx(40, abs=1)
    for _ in range(NewTokenEstimator.DECAY_STEPS):
        estimator.decoded()
    assert estimator.reserve([req]) == 10
    estimator.retracted()
    assert estimator.reserve([req]) == 70
    req.output_ids = [1] * 60
    assert estimator.reserve([req, req]) == 56


def test_no_more_is_evicted_than_is_needed() -> None:
    pool = TokenToKVPool(size=10, n_layers=1, n_kv_heads=1, head_dim=2, dtype=torch.float32, device=torch.device("cpu"))
    memory = KVMemory(pool, ReqToTokenPool(size=2, max_len=10, device=torch.device("cpu")), RadixCache(pool))
    for first in (1, 2, 3):
        slots = memory.take(2)
        assert slots is not None
        memory.cache.insert([first, first], slots)
    assert memory.take(11) is None
    taken = memory.take(5)
    assert taken is not None
    assert taken.numel() == 5
    assert memory.cache.evictable == 4, "one of three entries had to go"
    assert memory.room == 5


def _request(max_new_tokens: int) -> Request:
    return Request(rid="r", prompt_ids=[1], prompt="", sampling=SamplingParams(max_new_tokens=max_new_tokens), seed=0,
                   metrics=RequestMetrics(arrival=0.0))
