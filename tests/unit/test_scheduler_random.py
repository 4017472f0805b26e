"""Random traffic: requests arrive, are aborted and retracted at random, and each still gets its solo answer."""

from __future__ import annotations

import random

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from tests.conftest import EngineFactory

WORDS = ("the", "old", "ship", "sailed", "into", "a", "quiet", "harbour", "at", "dawn", "with", "nine", "men")
CONSTRAINTS = (None, None, Constraint.regex("[a-z ]{3,30}"), Constraint.regex("([0-9]{2} ){40}"),
               Constraint.choice(["yes", "no", "not at all"]), Constraint.regex("("))


@pytest.mark.parametrize("seed", range(4))
def test_random_traffic_gives_each_request_its_solo_answer(seed: int, make_engine: EngineFactory) -> None:
    rng = random.Random(seed)
    solo = make_engine(exact=True, prefix_cache="naive")
    engine = make_engine(exact=True, kv_pool_tokens=rng.choice([90, 140, 400]), new_token_ratio=rng.choice([0.1, 0.7]),
                         chunked_prefill_size=rng.choice([2, 5, 64]), max_running_requests=rng.choice([2, 5, 16]),
                         schedule_policy=rng.choice(["fcfs", "lpm"]))
    asked: dict[str, tuple[str, SamplingParams, Constraint | None]] = {}
    results: dict[str, Result] = {}
    aborted: set[str] = set()
    left = 24
    while left or engine.has_work:
        for _ in range(rng.choice([0, 0, 1, 3])):
            if not left:
                break
            left -= 1
            shared = rng.choice([0, 4, 9])
            prompt = " ".join([*WORDS[:shared], *rng.choices(WORDS, k=rng.randint(1, 8))])
            params = SamplingParams(max_new_tokens=rng.randint(1, 24), temperature=rng.choice([0.0, 1.0]),
                                    seed=rng.randrange(1000), top_logprobs=rng.choice([0, 2]),
                                    prompt_logprobs=rng.random() < 0.2, stop=rng.choice([(), ("e",), ("99", "the ")]))
            constraint = rng.choice(CONSTRAINTS)
            asked[engine.add_request(prompt, sampling=params, constraint=constraint)[0]] = (prompt, params, constraint)
        engine.step()
        engine.check_integrity()
        results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
        alive = sorted(asked.keys() - results.keys())
        if alive and rng.random() < 0.06:
            aborted.add(rng.choice(alive))
            engine.abort(max(aborted & set(alive)))
    assert results.keys() == asked.keys()
    for name, (prompt, params, constraint) in asked.items():
        reference = solo.generate([prompt], sampling=params, constraint=constraint)[0]
        result = results[name]
        if result.finish_reason == "abort":
            assert reference.token_ids[:len(result.token_ids)] == result.token_ids
            continue
        assert (result.finish_reason, result.text, result.token_ids, result.matched) == (
            reference.finish_reason, reference.text, reference.token_ids, reference.matched), name
        assert result.logprobs == reference.logprobs
        assert result.prompt_logprobs == reference.prompt_logprobs
        assert str(result.error) == str(reference.error)
