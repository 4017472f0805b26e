"""(b) finished output is in the language, (c) cut output is a viable prefix, (f) the books balance after each."""

from __future__ import annotations

import random

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from tests.conformance.harness import REGEXES, Ask, Target, each_target, in_language, run
from tests.conftest import EngineFactory
from tests.oracles.nfa_oracle import MaskOracle

PROMPTS = ("Answer: ", "The ship ", "世界 ", "x")


def _random_asks(rng: random.Random, count: int, max_new_tokens: int) -> list[Ask]:
    return [Ask(rng.choice(PROMPTS), Constraint.regex(rng.choice(REGEXES)) if rng.random() < 0.8 else None,
                SamplingParams(max_new_tokens=max_new_tokens, temperature=rng.choice([0.0, 0.7, 1.5]),
                               top_k=rng.choice([0, 5]), top_p=rng.choice([1.0, 0.8]), seed=rng.randrange(10**6)))
            for _ in range(count)]


@each_target
@pytest.mark.parametrize("company", [1, 7])
def test_finished_output_is_in_the_language(target: Target, company: int, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    rng = random.Random(company)
    ended = {"stop": 0, "length": 0}
    for _ in range(14 // company):
        asks = _random_asks(rng, company, max_new_tokens=40)
        for ask, result in zip(asks, run(engine, asks), strict=True):
            assert result.finish_reason in ended, result.error
            if ask.constraint is not None:
                ended[result.finish_reason] += 1
                if result.finish_reason == "stop":
                    assert in_language(ask.constraint, result.text), (ask.constraint.text, result.text)
    assert ended["stop"] >= 5


@each_target
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_cut_output_is_a_viable_prefix(target: Target, limit: int, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    vocabulary = engine.tokenizer.vocabulary
    asks = [ask for ask in _random_asks(random.Random(limit), 24, max_new_tokens=limit) if ask.constraint is not None]
    cut = 0
    for ask, result in zip(asks, run(engine, asks), strict=True):
        assert len(result.token_ids) <= limit
        assert result.finish_reason in ("stop", "length")
        if result.finish_reason == "length" and ask.constraint is not None:
            cut += 1
            spelled = vocabulary.decode(result.token_ids)
            assert MaskOracle(ask.constraint.source, vocabulary).viable(spelled), (ask.constraint.text, spelled)
    assert cut >= 3


@each_target
def test_abort_at_every_step_leaves_nothing_behind(target: Target, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    constraint = Constraint.regex("[0-9]{12}")
    for turns in range(5):
        victim = engine.add_request("abort me", sampling=SamplingParams(max_new_tokens=12), constraint=constraint)[0]
        other = engine.add_request("keep me", sampling=SamplingParams(max_new_tokens=4), constraint=constraint)[0]
        for _ in range(turns):
            engine.step()
        engine.abort(victim)
        engine.abort(victim)
        results: dict[str, Result] = {}
        while engine.has_work:
            engine.step()
            engine.check_integrity()
            results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
        assert results[victim].finish_reason == "abort"
        assert len(results[victim].token_ids) == turns
        assert results[other].finish_reason == "length"


@each_target
def test_a_bad_grammar_ends_alone(target: Target, make_engine: EngineFactory) -> None:
    """hand-055: fail closed, twice the same error, and the others go on."""
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    asks = [Ask("a", Constraint.regex("(")), Ask("b", Constraint.regex("[0-9]{2}")), Ask("c"),
            Ask("d", Constraint.regex("("))]
    bad, good, free, again = run(engine, asks)
    assert (bad.finish_reason, again.finish_reason) == ("error", "error")
    assert bad.token_ids == [] == again.token_ids
    assert str(bad.error) == str(again.error)
    assert good.finish_reason == "stop"
    assert in_language(asks[1].constraint, good.text)
    assert free.finish_reason == "length"
    assert run(engine, [asks[1]])[0].finish_reason == "stop"
