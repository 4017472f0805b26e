"""What the loop owes its policy, its memory and its books; each test would notice one line of the loop gone."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import RequestError
from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.kv_memory import KVMemory
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool
from shared_runtime.metrics import RequestMetrics
from shared_runtime.policy import COMPILING, READY, Admission
from shared_runtime.radix_cache import RadixCache
from shared_runtime.request import Request
from shared_runtime.request_factory import Ask
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


@pytest.mark.parametrize("failing_pass", [1, 2, 4])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_pass_that_fails_leaves_an_engine_that_works(
        failing_pass: int, error: type[BaseException], make_engine: EngineFactory) -> None:
    """Ctrl-C in a notebook, or memory running out: its requests end, their slots come back, the next one runs."""
    engine = make_engine(kv_pool_tokens=64, chunked_prefill_size=16)
    original, passes = engine.parts.runner.forward, 0

    def forward(batch: ForwardBatch) -> torch.Tensor:
        nonlocal passes
        passes += 1
        if passes == failing_pass:
            raise error("in the middle of a pass")
        return original(batch)

    engine.parts.runner.forward = forward  # type: ignore[method-assign]  # fails once
    params = SamplingParams(max_new_tokens=20, ignore_eos=True)
    with pytest.raises(error):
        engine.generate(["one two three four five six seven eight nine ten", "eleven"], sampling=params)
    engine.check_integrity()
    assert not engine.has_work
    assert engine.parts.memory.room == 64
    assert len(engine.generate_one("one two three", sampling=params).token_ids) == 20


def test_an_interrupt_while_requests_are_handed_in_leaves_none_behind(
        make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    original, made = engine._factory.make, 0

    def make(ask: Ask, rid: str) -> list[Request]:
        nonlocal made
        made += 1
        if made == 3:
            raise KeyboardInterrupt
        return original(ask, rid)

    monkeypatch.setattr(engine._factory, "make", make)
    with pytest.raises(KeyboardInterrupt):
        engine.generate(["one", "two", "three", "four"], sampling=SamplingParams(max_new_tokens=4))
    assert not engine.has_work
    assert engine.take_events() == []


def test_requests_of_another_caller_hear_of_a_failed_pass(make_engine: EngineFactory) -> None:
    engine = make_engine()
    name, = engine.add_request("mine", sampling=SamplingParams(max_new_tokens=4))

    def explode(batch: ForwardBatch) -> torch.Tensor:
        raise ZeroDivisionError("a defect")

    engine.parts.runner.forward = explode  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        engine.step()
    events = {event.rid: event.result for event in engine.take_events()}
    result = events[name]
    assert result is not None
    assert result.finish_reason == "error"
    assert "ZeroDivisionError" in str(result.error)


def test_a_stage_that_fails_to_admit_one_request_serves_the_others(make_engine: EngineFactory) -> None:
    engine = make_engine()
    original = engine.parts.policy.admit

    def admit(req: Request) -> Admission:
        if req.constraint is not None and req.constraint.source == "[0-9]":
            raise KeyError("a defect")
        return original(req)

    engine.parts.policy.admit = admit  # type: ignore[method-assign]
    bad, good = engine.generate(["x", "y"], sampling=SamplingParams(max_new_tokens=8), constraint=[
        Constraint.regex("[0-9]"), Constraint.regex("[0-9]{2}")])
    assert (bad.finish_reason, good.finish_reason) == ("error", "stop")
    assert "KeyError" in str(bad.error)


def test_a_request_aborted_before_its_first_turn_is_not_compiled(make_engine: EngineFactory) -> None:
    engine = make_engine()
    admitted = _counted(engine, "admit")
    name, = engine.add_request("x", constraint=Constraint.regex("[0-9]{2}"))
    engine.abort(name)
    assert _drain(engine)[name].finish_reason == "abort"
    assert admitted == []


def test_an_id_that_a_caller_chose_is_not_given_to_another(make_engine: EngineFactory) -> None:
    engine = make_engine()
    for number in range(1, 6):
        engine.add_request("mine", rid=f"req-{number}", sampling=SamplingParams(max_new_tokens=2))
    results = engine.generate(["b", "c"], sampling=SamplingParams(max_new_tokens=2))
    assert [result.error for result in results] == [None, None]
    _drain(engine)


def test_masked_logprobs_are_of_what_could_come_stop_tokens_included(make_engine: EngineFactory) -> None:
    """Over everything that may come, the probabilities add up to 1."""
    engine = make_engine()
    newline = engine.tokenizer.encode("\n")[0]
    digits = [engine.tokenizer.encode(str(digit))[0] for digit in range(10)]
    total = 0.0
    for token_id in (*digits, newline, 2):
        params = SamplingParams(max_new_tokens=1, logprobs=True, stop_token_ids=(newline,), logit_bias={token_id: 1e4})
        result = engine.generate_one("x", sampling=params, constraint=Constraint.regex("[0-9]*"))
        assert result.token_ids == [token_id]
        total += math.exp(result.logprobs[0].masked_logprob)
    assert total == pytest.approx(1.0, abs=1e-5)


def test_a_stop_string_in_a_constrained_answer_says_that_it_may_be_incomplete(make_engine: EngineFactory) -> None:
    result = make_engine().generate_one("x", sampling=SamplingParams(max_new_tokens=20, stop=("b",)),
                                        constraint=Constraint.regex("ab[0-9]{3}"))
    assert (result.text, result.finish_reason, result.matched) == ("a", "stop", "b")
    assert any("stop string" in text for text in result.warnings)


def test_the_models_own_stop_token_as_an_extra_one_ends_also_under_ignore_eos(make_engine: EngineFactory) -> None:
    engine = make_engine()
    params = SamplingParams(max_new_tokens=9, ignore_eos=True, stop_token_ids=(2,), logit_bias={2: 1e4})
    bound = engine.generate_one("x", sampling=params, constraint=Constraint.regex("[0-9]*"))
    free = engine.generate_one("x", sampling=params)
    assert (bound.token_ids, bound.matched) == (free.token_ids, free.matched) == ([2], 2)


@pytest.mark.parametrize("arguments", [
    {"prompt": 5}, {"prompt_ids": ["a"]}, {"prompt": "x", "constraint": "[a-z]"}, {"prompt": "x", "sampling": 3},
    {"messages": "hello"}, {"prompt": "word " * 200_000},
])
def test_what_is_no_request_is_refused_by_name(arguments: dict[str, object], make_engine: EngineFactory) -> None:
    engine = make_engine()
    with pytest.raises(RequestError) as caught:
        engine.add_request(**arguments)  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.where in arguments
