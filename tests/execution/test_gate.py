"""The gate's rule, reason by reason, and that every loop asks it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import get_args

import pytest
import torch

from shared_runtime.constraint import Constraint
from shared_runtime.execution.gate import Candidate, gate_reason
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.metrics import RequestMetrics
from shared_runtime.policy import StageOptions
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import BatchRow, ScheduleBatch
from shared_runtime.trace import GateReason
from tests.conformance.harness import Ask
from tests.conftest import EngineFactory
from tests.execution.overlap_runs import COMPANY, each_scheme, order, settings, traced

DECODE, EXTEND = ForwardMode.DECODE, ForwardMode.EXTEND
PLAIN = StageOptions()
DRAFTS, FORCED = StageOptions(spec="ngram"), StageOptions(backend_jump="force")


def _req(grammar: bool) -> Request:
    return Request(rid="r", prompt_ids=[1], prompt="", sampling=SamplingParams(), seed=0,
                   constraint=Constraint.regex("a") if grammar else None, metrics=RequestMetrics(arrival=0.0))


def _pending(mode: ForwardMode = DECODE, draft: int = 0) -> ScheduleBatch:
    return ScheduleBatch(mode, [BatchRow(_req(True), 0, [1, 2], torch.tensor([1, 2]), draft=draft)])


def test_nothing_waits_for_results_that_are_in() -> None:
    for mode, grammar, options in itertools.product((DECODE, EXTEND), (False, True), (PLAIN, DRAFTS, FORCED)):
        for scheme in ("event", "delayed"):
            assert gate_reason(Candidate(mode, [_req(grammar)]), None, options, scheme) is None


@pytest.mark.parametrize(("mode", "grammar", "options", "reason"), [
    (DECODE, True, PLAIN, None), (DECODE, False, PLAIN, None), (EXTEND, True, PLAIN, None),
    # Upstream's rule: speculation and grammar and decode and a result that waits.
    (DECODE, True, DRAFTS, "speculation"), (EXTEND, True, DRAFTS, None),
    (DECODE, True, FORCED, "backend_jump"), (DECODE, False, FORCED, None), (EXTEND, True, FORCED, None),
    (DECODE, True, replace(DRAFTS, backend_jump="draft"), "speculation"),
    # Ours: drafts are looked up in the output, so they need the newest token too.
    (DECODE, False, DRAFTS, "drafts"),
])
@pytest.mark.parametrize("scheme", ["event", "delayed"])
def test_the_rule(mode: ForwardMode, grammar: bool, options: StageOptions, reason: GateReason | None,
                  scheme: str) -> None:
    candidate = Candidate(mode, [_req(False), _req(grammar)], room=2)
    assert gate_reason(candidate, _pending(), options, scheme) == reason  # type: ignore[arg-type]  # one of the two


def test_a_pass_that_verifies_drafts_is_waited_for() -> None:
    for mode in (DECODE, EXTEND):
        assert gate_reason(Candidate(mode, room=9), _pending(draft=1), PLAIN, "delayed") == "drafts"


def test_with_the_event_a_prefill_is_waited_for() -> None:
    """Its memory is shared when it is done; with delayed sampling it is done by then."""
    for mode in (DECODE, EXTEND):
        assert gate_reason(Candidate(mode, room=9), _pending(EXTEND), PLAIN, "event") == "prefill"
        assert gate_reason(Candidate(mode, room=9), _pending(EXTEND), PLAIN, "delayed") is None


def test_nobody_is_retracted_before_it_is_known_who_has_ended() -> None:
    reqs = [_req(False), _req(True)]
    assert gate_reason(Candidate(DECODE, reqs, room=1), _pending(), PLAIN, "delayed") == "memory"
    assert gate_reason(Candidate(DECODE, reqs, room=2), _pending(), PLAIN, "delayed") is None


@each_scheme
@pytest.mark.parametrize(("options", "reason"), [(DRAFTS, "speculation"), (FORCED, "backend_jump")])
def test_a_shut_gate_processes_first(stage: int, options: StageOptions, reason: str,
                                     make_engine: EngineFactory) -> None:
    engine = make_engine(**settings(stage, trace=True))
    engine.scheduler._options = options  # type: ignore[attr-defined]  # the gate alone sees them: no stage is asked
    records = traced(engine, [ask for ask in COMPANY if ask.constraint is not None])
    seq = order(records)
    shut = [record.step for record in records if record.overlap.gate_reason == reason]
    assert len(shut) > 10
    for step in shut:
        assert not records[step].overlap.on
        if ("launch", step + 1) in seq:
            assert seq["results_processed", step] < seq["launch", step + 1] < seq["mask_ready", step + 1]


@each_scheme
def test_memory_that_runs_short_shuts_the_gate(stage: int, make_engine: EngineFactory) -> None:
    engine = make_engine(**settings(stage, trace=True, kv_pool_tokens=70, new_token_ratio=0.1))
    records = traced(engine, [Ask(f"Number {index}", None, SamplingParams(max_new_tokens=24, ignore_eos=True))
                              for index in range(6)])
    assert any(record.retracted for record in records)
    reasons = {record.overlap.gate_reason for record in records}
    assert "memory" in reasons
    for record in records:
        if record.retracted:
            assert records[record.step - 1].overlap.gate_reason is not None


def test_every_reason_is_explained() -> None:
    import inspect

    from shared_runtime import trace

    text = inspect.getsource(trace)
    for reason in get_args(GateReason):
        assert f"`{reason}`: " in text


def test_a_loop_without_overlap_has_no_gate(make_engine: EngineFactory) -> None:
    for stage in (4, 5):
        engine = make_engine(**settings(stage, overlap=False, trace=True))
        for record in traced(engine, COMPANY[:2]):
            assert (record.overlap.on, record.overlap.gate_reason) == (False, None)
