"""Behaviour cases of the generations whose grammars are compiled beside the loop, by whichever backend."""

from __future__ import annotations

import importlib
import time

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, UnsupportedConstraintError
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from tests.conformance.harness import TARGETS, Ask, Target, in_language, run
from tests.conftest import EngineFactory

ASYNC = [target for target in TARGETS if target.spec.capabilities.async_compile]
each_async_target = pytest.mark.parametrize("target", ASYNC, ids=str)

SHORT = SamplingParams(max_new_tokens=6)


@each_async_target
def test_hand_056_a_kind_nobody_compiles_is_refused_and_no_other(target: Target, make_engine: EngineFactory) -> None:
    """A backend that lacks a kind stands for the backend that is switched off."""
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    kind = Constraint.json_object() if not target.supports("json_object") else Constraint.regex("(?=a)b")
    refused, free = run(engine, [Ask("x", kind, SHORT), Ask("y", None, SHORT)])
    assert isinstance(refused.error, UnsupportedConstraintError)
    assert refused.token_ids == []
    assert free.finish_reason == "length"


@each_async_target
def test_hand_057_a_failing_compile_ends_its_requests_and_is_remembered(
        target: Target, make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stub replaces the compile of the stage's own backend: it raises half a second later."""
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    base = importlib.import_module(f"stages.{target.spec.name}.base_grammar_backend").REGISTRY
    module, _, name = base.lazy[target.backend].partition(":")
    backend = vars(importlib.import_module(module, f"stages.{target.spec.name}"))[name]
    compiles: list[Constraint] = []

    def fail(_self: object, constraint: Constraint) -> object:
        compiles.append(constraint)
        time.sleep(0.5)
        raise RuntimeError("no more")

    real = backend.init_value
    monkeypatch.setattr(backend, "init_value", fail)
    bad = Constraint.regex("[0-9]{3}")
    results = run(engine, [Ask("x", bad, SHORT), Ask("y", None, SHORT), Ask("z", bad, SHORT), Ask("u", None, SHORT),
                           Ask("w", bad, SHORT)])
    for result in (results[0], results[2], results[4]):
        assert isinstance(result.error, ConstraintError)
        assert "RuntimeError: no more" in str(result.error)
    assert [results[index].finish_reason for index in (1, 3)] == ["length", "length"]
    fourth, = run(engine, [Ask("x", bad, SHORT)])
    assert isinstance(fourth.error, ConstraintError)
    assert len(compiles) == 1
    monkeypatch.setattr(backend, "init_value", real)
    good, = run(engine, [Ask("x", Constraint.regex("[a-c]{3}"), SHORT)])
    assert in_language(Constraint.regex("[a-c]{3}"), good.text)


@each_async_target
def test_the_same_new_grammar_of_32_requests_compiles_once(
        target: Target, make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend, max_running_requests=8)
    base = importlib.import_module(f"stages.{target.spec.name}.base_grammar_backend").REGISTRY
    module, _, name = base.lazy[target.backend].partition(":")
    backend = vars(importlib.import_module(module, f"stages.{target.spec.name}"))[name]
    compiles: list[Constraint] = []
    real = backend.init_value

    def counted(self: object, constraint: Constraint) -> object:
        compiles.append(constraint)
        return real(self, constraint)

    monkeypatch.setattr(backend, "init_value", counted)
    constraint = Constraint.regex("[0-9]{2}-[a-f]{2}")
    sampling = [SamplingParams(max_new_tokens=12, temperature=3.0, seed=number) for number in range(32)]
    results = run(engine, [Ask("x", constraint, one) for one in sampling])
    assert all(in_language(constraint, result.text) for result in results)
    assert len({result.text for result in results}) > 1
    assert len(compiles) == 1


@each_async_target
def test_64_distinct_grammars_at_once(target: Target, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend, max_running_requests=16)
    constraints = [Constraint.choice([f"{number}-{word}" for word in ("red", "blue")]) for number in range(64)]
    results = run(engine, [Ask("x", constraint, SamplingParams(max_new_tokens=12)) for constraint in constraints])
    for constraint, result in zip(constraints, results, strict=True):
        assert result.finish_reason == "stop"
        assert in_language(constraint, result.text)


@each_async_target
def test_an_abort_while_compiling_ends_the_request_and_no_other(
        target: Target, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    constraint = Constraint.regex("[0-9]{4}")
    first, = engine.add_request("x", constraint=constraint, sampling=SamplingParams(max_new_tokens=8))
    second, = engine.add_request("y", constraint=constraint, sampling=SamplingParams(max_new_tokens=8))
    engine.step()
    for _ in range(2):
        engine.abort(first)
    done: dict[str, Result] = {}
    while engine.has_work:
        engine.step()
        done |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    assert done[first].finish_reason == "abort"
    assert done[second].finish_reason == "stop"
    assert in_language(constraint, done[second].text)
