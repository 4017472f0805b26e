"""The order of events with overlap, and that the pass really runs beside the work it is said to overlap."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from torch import Tensor

from jumpforward.cli import main
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.execution import flight
from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.trace import EventName, StepRecord
from tests.conformance.harness import Ask
from tests.conftest import EngineFactory
from tests.execution.overlap_runs import COMPANY, ENDLESS, each_scheme, order, settings, traced

PLENTY_S = 60.0


def _in_order(records: list[StepRecord]) -> int:
    """How many passes were launched ahead; each in the order that the contract wants."""
    seq, ahead = order(records), 0
    for record in records:
        step = record.step
        if ("sampled", step) in seq:
            assert seq["launch", step] < seq["mask_ready", step] < seq["sampled", step] < seq[
                "results_processed", step]
        if ("launch", step + 1) not in seq:
            continue
        if record.overlap.on:
            ahead += 1
            assert record.overlap.gate_reason is None
            assert seq["launch", step + 1] < seq["results_processed", step]
            if ("mask_ready", step + 1) in seq:  # not when all its rows were wasted
                assert seq["results_processed", step] < seq["mask_ready", step + 1] < seq["sampled", step + 1]
        elif ("results_processed", step) in seq:
            assert seq["results_processed", step] < seq["launch", step + 1]
    return ahead


@each_scheme
def test_the_events_come_in_the_order_of_the_contract(stage: int, make_engine: EngineFactory) -> None:
    records = traced(make_engine(**settings(stage, trace=True)), COMPANY)
    assert [record.step for record in records] == list(range(len(records)))
    numbers = sorted(event.seq for record in records for event in record.events)
    assert numbers == list(range(len(numbers)))
    assert all(event.step == record.step for record in records for event in record.events)
    assert _in_order(records) > sum(record.mode != "idle" for record in records) // 2


def test_the_plain_loop_launches_nothing_ahead(make_engine: EngineFactory) -> None:
    assert _in_order(traced(make_engine(**settings(5, overlap=False, trace=True)), COMPANY)) == 0


@each_scheme
def test_chunks_of_a_prompt_overlap_as_the_scheme_allows(stage: int, make_engine: EngineFactory) -> None:
    records = traced(make_engine(**settings(stage, trace=True, chunked_prefill_size=3)), COMPANY)
    _in_order(records)
    reasons = {record.overlap.gate_reason for record in records if record.mode == "extend"}
    assert ("prefill" in reasons) == (stage == 4)


def _hold_each_pass_until_its_mask_is_filled(engine: Engine, patience_s: float) -> None:
    """Pass n is not done before the loop has filled its mask, and so has processed the results of pass n - 1."""
    tracer, forward = engine.parts.tracer, engine.parts.runner.forward
    event, filled, passes = tracer.event, threading.Semaphore(0), 0

    def telling(name: EventName) -> None:
        event(name)
        if name == "mask_ready":
            filled.release()

    def held(batch: ForwardBatch) -> Tensor:
        nonlocal passes
        passes += 1
        if not filled.acquire(timeout=patience_s):
            raise TimeoutError(f"pass {passes} is waited for before its mask is filled")
        return forward(batch)

    tracer.event = telling  # type: ignore[method-assign]
    engine.parts.runner.forward = held  # type: ignore[method-assign]


@each_scheme
def test_the_mask_is_filled_while_the_pass_is_computed(stage: int, make_engine: EngineFactory) -> None:
    """A loop that waits for a pass before it has done the other work would wait here for ever.

    All end by their length, which is known ahead: no mask is filled for a pass that turns out to be wasted.
    """
    asks = [Ask("one two three", Constraint.regex("[a-z ]{200}"), ENDLESS), Ask("one two", None, ENDLESS),
            Ask("dates: ", Constraint.regex("([0-9]{2} ){60}x"), ENDLESS)]
    engine = make_engine(**settings(stage, trace=True))
    _hold_each_pass_until_its_mask_is_filled(engine, PLENTY_S)
    records = traced(engine, asks)
    assert _in_order(records) > 5
    assert not any("failed" in str(record.as_dict()) for record in records)


@each_scheme
def test_handing_over_and_waiting_at_once_does_not_pass(stage: int, make_engine: EngineFactory,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """The same test with a loop that starts a pass and waits for it there: its trace has all events, and it fails."""
    start = flight.ThreadPasses.start

    def start_and_join(self: flight.ThreadPasses, compute: Callable[[], object]) -> Future[object]:
        pending = start(self, compute)
        pending.exception(timeout=PLENTY_S)
        return pending

    monkeypatch.setattr(flight.ThreadPasses, "start", start_and_join)
    engine = make_engine(**settings(stage, trace=True))
    _hold_each_pass_until_its_mask_is_filled(engine, 0.05)
    with pytest.raises(TimeoutError, match="before its mask is filled"):
        traced(engine, [Ask("x", None, ENDLESS)])


@each_scheme
def test_a_turn_returns_with_the_next_pass_on_its_way(stage: int, make_engine: EngineFactory) -> None:
    """So the caller has the tokens at once: step k brings the k-th token, as in the plain loop."""
    engine = make_engine(**settings(stage))
    engine.add_request("one", sampling=ENDLESS)
    counts = []
    while engine.has_work:
        engine.step()
        if engine.has_work:
            assert len(engine.scheduler.in_flight) == 1
        counts += [len(event.token_ids) for event in engine.take_events()]
    assert counts == [1] * ENDLESS.max_new_tokens


@pytest.mark.model
def test_the_page_shows_what_a_person_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "loop.md").read_text(encoding="utf-8")
    command, = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    script, = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    shown, = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0
    capsys.readouterr()
    exec(compile(script, "docs/loop.md", "exec"), {})
    assert capsys.readouterr().out == shown
