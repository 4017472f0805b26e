"""What fails on the way: contained as in the plain loop; no thread, no tensor and no slot is left behind."""

from __future__ import annotations

import gc
import signal
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import ConfigError, IntegrityError
from shared_runtime.execution import overlap_loop
from shared_runtime.execution.event_loop import Permit
from shared_runtime.execution.flight import Flight
from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.policy import Proposal, StageOptions
from shared_runtime.request import Request
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from tests.conformance.harness import Ask
from tests.conftest import EngineFactory
from tests.execution.overlap_runs import drive, each_scheme, settings

PARAMS = SamplingParams(max_new_tokens=20, ignore_eos=True)
PROMPTS = ["one two three four five six seven eight nine ten", "eleven"]


def _drained(engine: Engine) -> None:
    """Nobody lives any more; what is still on its way may come down."""
    assert not engine.scheduler.queues.in_memory
    while engine.has_work:
        engine.step()
    engine.check_integrity()
    assert engine.parts.memory.room == 64
    assert len(engine.generate_one("one two three", sampling=PARAMS).token_ids) == 20


@each_scheme
@pytest.mark.parametrize("failing_pass", [1, 2, 4])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ZeroDivisionError])
def test_a_pass_that_fails_leaves_an_engine_that_works(stage: int, failing_pass: int, error: type[BaseException],
                                                       make_engine: EngineFactory) -> None:
    engine = make_engine(**settings(stage, kv_pool_tokens=64, chunked_prefill_size=16))
    original, passes = engine.parts.runner.forward, 0

    def forward(batch: ForwardBatch) -> Tensor:
        nonlocal passes
        passes += 1
        if passes == failing_pass:
            raise error("in the middle of a pass")
        return original(batch)

    engine.parts.runner.forward = forward  # type: ignore[method-assign]  # fails once
    with pytest.raises(error):
        engine.generate(PROMPTS, sampling=PARAMS)
    engine.check_integrity()
    _drained(engine)


@each_scheme
@pytest.mark.parametrize("method", ["accept", "fill_mask", "release"])
@pytest.mark.parametrize("call", [1, 3])
def test_a_stage_that_raises_leaves_an_engine_that_works(stage: int, method: str, call: int,
                                                         make_engine: EngineFactory) -> None:
    engine = make_engine(**settings(stage, kv_pool_tokens=64))
    original, calls = getattr(engine.parts.policy, method), 0

    def raising(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call:
            raise ZeroDivisionError("a defect")
        return original(*arguments)

    setattr(engine.parts.policy, method, raising)
    names = [engine.add_request(prompt, sampling=SamplingParams(max_new_tokens=8), constraint=Constraint.regex(
        "[0-9]{20}"))[0] for prompt in ("a", "b", "c")]
    results: dict[str, Result] = {}
    failed = 0
    while engine.has_work:
        try:
            engine.step()
        except ZeroDivisionError:
            failed += 1
        engine.check_integrity()
        results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    assert failed == 1
    if method != "release":  # a release that fails has lost its request already
        assert results.keys() == set(names)
    setattr(engine.parts.policy, method, original)
    _drained(engine)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("call", [1, 2, 3, 5])
@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_turn_that_fails_over_forced_text_ends_its_request(overlap: bool, call: int, when: str,
                                                             make_engine: EngineFactory) -> None:
    """Its memory is taken and its grammar has moved, while its row is not there yet."""
    options = StageOptions(backend_jump="force+draft")
    engine = make_engine(**settings(5, overlap=overlap, kv_pool_tokens=64, options=options))
    original, calls = engine.parts.policy.propose, 0

    def propose(req: Request, room: int) -> Proposal:
        nonlocal calls
        calls += 1
        if calls == call and when == "before":
            raise KeyboardInterrupt
        proposal = original(req, room)
        if calls == call:
            raise KeyboardInterrupt
        return proposal

    engine.parts.policy.propose = propose  # type: ignore[method-assign]
    names = [engine.add_request(prompt, sampling=PARAMS, constraint=Constraint.regex("abcd, [0-9], efgh, [0-9]{20}"))[0]
             for prompt in ("a", "b")]
    results: dict[str, Result] = {}
    failed = 0
    while engine.has_work:
        try:
            engine.step()
        except KeyboardInterrupt:
            failed += 1
        engine.check_integrity()
        results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    assert failed == 1
    assert results.keys() == set(names)
    assert "error" in {result.finish_reason for result in results.values()}
    engine.parts.policy.propose = original  # type: ignore[method-assign]
    _drained(engine)


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """A process that was started in the background may have been told to ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@each_scheme
@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_while_waiting_does_not_wait(stage: int, make_engine: EngineFactory) -> None:
    """The pass cannot be stopped; its slots stay its own until it is done, and nobody else gets them."""
    engine = make_engine(**settings(stage, kv_pool_tokens=64))
    original, passes, go_on = engine.parts.runner.forward, 0, threading.Event()

    def forward(batch: ForwardBatch) -> Tensor:
        nonlocal passes
        passes += 1
        if passes == 3:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert go_on.wait(60)
        return original(batch)

    engine.parts.runner.forward = forward  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        engine.generate(PROMPTS, sampling=PARAMS)
    assert engine.has_work
    assert engine.scheduler.in_flight
    engine.check_integrity()
    assert engine.parts.memory.room < 64
    go_on.set()
    _drained(engine)


@each_scheme
def test_a_full_disk_costs_the_trace_and_no_answer(stage: int, make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(**settings(stage, trace=tmp_path / "trace.jsonl"))
    name, = engine.add_request("x", sampling=PARAMS)
    engine.step()

    class Full:
        name = "trace.jsonl"

        def write(self, text: str) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            """Nothing to do."""

    engine.parts.tracer._file.close()  # type: ignore[attr-defined]
    engine.parts.tracer._file = Full()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="No space left"):
        engine.step()
    while engine.has_work:
        engine.step()
    result = engine.take_events()[-1].result
    assert result is not None
    assert (result.rid, len(result.token_ids)) == (name, 20)


def _forward_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("forward")]


@each_scheme
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_closing_joins_the_thread_wherever_the_loop_is(stage: int, steps: int, make_engine: EngineFactory) -> None:
    before = set(_forward_threads())
    engine = make_engine(**settings(stage))
    engine.add_request("one two", sampling=PARAMS)
    for _ in range(steps):
        engine.step()
    assert len(set(_forward_threads()) - before) == min(steps, 1)
    engine.close()
    engine.close()
    assert set(_forward_threads()) <= before


@each_scheme
def test_an_engine_that_nobody_closed_takes_its_thread_along(stage: int, tiny_model: Path) -> None:
    before = set(_forward_threads())
    engine = Engine(EngineConfig(model=str(tiny_model), kv_pool_tokens=64, stage=stage, overlap=True,
                                 backend="xgrammar"))
    engine.add_request("one two", sampling=PARAMS)
    for _ in range(3):
        engine.step()
    assert len(set(_forward_threads()) - before) == 1
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None
    for thread in set(_forward_threads()) - before:
        thread.join(60)
    assert set(_forward_threads()) <= before


@each_scheme
def test_what_a_pass_was_sampled_from_is_not_kept(stage: int, make_engine: EngineFactory) -> None:
    """Logits, masks and closures (museum row 58): after a turn only the pass on its way has any."""
    engine = make_engine(**settings(stage))
    logits: list[weakref.ref[Tensor]] = []
    masks: list[weakref.ref[object]] = []
    forward, fill = engine.parts.runner.forward, engine.parts.policy.fill_mask  # type: ignore[attr-defined]

    def noting_forward(batch: ForwardBatch) -> Tensor:
        made = forward(batch)
        logits.append(weakref.ref(made))
        return made

    def noting_fill(batch: object, positions: Sequence[int]) -> object:
        mask = fill(batch, positions)
        masks.append(weakref.ref(mask.apply))
        return mask

    engine.parts.runner.forward = noting_forward  # type: ignore[method-assign]
    engine.parts.policy.fill_mask = noting_fill  # type: ignore[attr-defined]
    bound = SamplingParams(max_new_tokens=40, ignore_eos=True, logprobs=True)
    for _ in range(2):
        engine.add_request("x", sampling=bound, constraint=Constraint.regex("[0-9]{60}"))
    gc.collect()
    gc.disable()  # nothing may hang on a cycle either
    try:
        most = steady = 0
        while engine.has_work:
            engine.step()
            most = max(most, sum(ref() is not None for ref in logits), sum(ref() is not None for ref in masks))
            steady = max(steady, len(logits))
    finally:
        gc.enable()
    engine.take_events()
    assert len(masks) > 30
    assert most <= 1 + (steady > 0)
    assert sum(ref() is not None for ref in logits) == 0


def test_a_permit_is_given_once() -> None:
    """Museum row 40: a pass whose event nobody sets stops the worker; one that is set twice hides that."""
    permit = Permit()
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(permit.wait()))
    thread.start()
    time.sleep(0.01)
    assert not seen
    permit.give(None)
    thread.join(60)
    assert seen == [None]
    with pytest.raises(AssertionError, match="once"):
        permit.give(None)


def test_every_pass_gets_its_permit_exactly_once(make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Permit] = []
    init = Permit.__init__

    def noting(self: Permit, *arguments: object, **more: object) -> None:
        init(self, *arguments, **more)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(Permit, "__init__", noting)
    engine = make_engine(**settings(4, chunked_prefill_size=2))
    drive(engine, [Ask("one two three four", None, PARAMS), Ask("x", Constraint.regex("[0-9]{3}"), PARAMS)])
    assert len(made) > 20
    assert all(permit.given for permit in made)


@each_scheme
def test_the_worker_has_the_engines_threads_and_inference_mode(stage: int, make_engine: EngineFactory) -> None:
    engine = make_engine(**settings(stage, threads=2))
    seen: set[tuple[str, int, bool, bool]] = set()
    forward = engine.parts.runner.forward

    def looking(batch: ForwardBatch) -> Tensor:
        seen.add((threading.current_thread().name[:7], torch.get_num_threads(), torch.is_inference_mode_enabled(),
                  torch.is_grad_enabled()))
        return forward(batch)

    engine.parts.runner.forward = looking  # type: ignore[method-assign]
    engine.generate_one("x", sampling=PARAMS)
    assert seen == {("forward", 2, True, False)}


@each_scheme
def test_a_pass_that_was_started_and_never_noted_keeps_nobody_waiting(
        stage: int, make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt between the start of a pass and the note of it, and books that do not balance at the same time."""
    engine = make_engine(**settings(stage, kv_pool_tokens=64))
    noted, free = 0, engine.parts.memory.pool.free

    def note(*arguments: object) -> Flight[object]:
        nonlocal noted
        noted += 1
        if noted == 3:
            monkeypatch.setattr(engine.parts.memory.pool, "free", refuse)
            raise KeyboardInterrupt
        return Flight(*arguments)  # type: ignore[arg-type]  # as they came

    def refuse(slots: Tensor) -> None:
        monkeypatch.setattr(engine.parts.memory.pool, "free", free)
        raise IntegrityError("spoiled")

    monkeypatch.setattr(overlap_loop, "Flight", note)
    with pytest.raises(KeyboardInterrupt):
        engine.generate(PROMPTS, sampling=PARAMS)
    _drained(engine)
