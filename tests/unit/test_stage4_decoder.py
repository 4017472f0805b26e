"""Stage 4 in an engine: jumps by three methods with every backend, and the requests around them untouched."""

from __future__ import annotations

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.policy import StageOptions
from shared_runtime.sampling_params import SamplingParams
from stages.stage4_backends.base_grammar_backend import BaseGrammarObject
from tests.conformance.harness import Ask, in_language, run
from tests.conftest import EngineFactory
from tests.unit.stage4_helpers import BACKENDS

each_backend = pytest.mark.parametrize("name", BACKENDS)
CARD = Constraint.regex(r'\{"name": "[A-Z][a-z]{2,5}", "element": "(fire|water|wind)", "level": [0-9]\}')
CHINESE = Constraint.regex("天气：(晴|多云|小雨)，出行：(步行|地铁)")


@each_backend
@pytest.mark.parametrize("constraint", [CARD, CHINESE], ids=["card", "chinese"])
def test_a_jump_saves_passes_and_stays_in_the_language(name: str, constraint: Constraint,
                                                       make_engine: EngineFactory) -> None:
    sampling = SamplingParams(max_new_tokens=80, temperature=2.0, seed=3, logprobs=True, prompt_logprobs=True)
    jumping = make_engine(stage=4, backend=name).generate_one("A card:", constraint=constraint, sampling=sampling)
    plain = make_engine(stage=4, backend=name, options=StageOptions(jump_forward=False)).generate_one(
        "A card:", constraint=constraint, sampling=sampling)
    for result in (jumping, plain):
        assert result.finish_reason == "stop"
        assert in_language(constraint, result.text)
        assert len(result.logprobs) == len(result.token_ids)
    assert plain.counts["jumped"] == 0
    assert jumping.counts["jumped"] > 3
    assert jumping.metrics.forward_passes < plain.metrics.forward_passes
    assert [entry.token_id for entry in jumping.logprobs] == jumping.token_ids


@each_backend
def test_a_refused_jump_is_no_jump(name: str, make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Museum row 18: with every move refused, the tokens are those of an engine that never jumps."""
    sampling = SamplingParams(max_new_tokens=60, temperature=2.0, seed=5)
    plain = make_engine(stage=4, backend=name, options=StageOptions(jump_forward=False), exact=True).generate_one(
        "x", constraint=CARD, sampling=sampling)
    asked = []

    def refuse(self: BaseGrammarObject, *_: object) -> bool:
        asked.append(self)
        return False

    monkeypatch.setattr(BaseGrammarObject, "jump_and_retokenize", refuse)
    result = make_engine(stage=4, backend=name, exact=True).generate_one("x", constraint=CARD, sampling=sampling)
    assert asked
    assert (result.token_ids, result.text) == (plain.token_ids, plain.text)
    assert result.counts["jumped"] == 0


@each_backend
def test_jumps_limits_stop_strings_and_streams(name: str, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=4, backend=name)
    for limit in (1, 2, 5, 9):
        cut, = run(engine, [Ask("x", CARD, SamplingParams(max_new_tokens=limit))])
        assert (cut.finish_reason, len(cut.token_ids)) == ("length", limit)
    stopped, = run(engine, [Ask("x", CARD, SamplingParams(max_new_tokens=60, stop=('"element"',)))])
    assert (stopped.finish_reason, stopped.matched) == ("stop", '"element"')
    assert '"element"' not in stopped.text
    assert sum("stop string" in warning for warning in stopped.warnings) == 1
    events = list(engine.stream("x", constraint=CARD, sampling=SamplingParams(max_new_tokens=60)))
    final = events[-1].result
    assert final is not None
    assert "".join(event.text for event in events) == final.text
    assert in_language(CARD, final.text)


@each_backend
def test_jumps_under_memory_pressure_leave_nobody_behind(name: str, make_engine: EngineFactory) -> None:
    """hand-052: a pool for two or three requests, six requests with jumps."""
    constraint = Constraint.regex("key=[a-z]{2};value=[0-9]{3};end")
    engine = make_engine(stage=4, backend=name, kv_pool_tokens=72, new_token_ratio=0.1)
    asks = [Ask(f"{number} asks:", constraint, SamplingParams(max_new_tokens=24, temperature=2.0, seed=number))
            for number in range(6)]
    for result in run(engine, asks):
        assert result.finish_reason == "stop"
        assert in_language(constraint, result.text)


def test_what_a_library_drops_is_told_in_the_result(make_engine: EngineFactory) -> None:
    schema = Constraint.json_schema({"type": "array", "items": {"enum": [1]}, "maxItems": 2, "uniqueItems": True})
    told = make_engine(stage=4, backend="xgrammar").generate_one(
        "x", constraint=schema, sampling=SamplingParams(max_new_tokens=12))
    assert any("uniqueItems" in text for text in told.warnings)
    strict = make_engine(stage=4, backend="xgrammar", options=StageOptions(strict=True))
    refused, = run(strict, [Ask("x", schema)])
    assert "uniqueItems" in str(refused.error)


def test_the_default_backend_is_that_of_its_time(make_engine: EngineFactory) -> None:
    policy = make_engine(stage=4).parts.policy
    assert vars(policy)["backend"].name == "outlines"
