"""Many grammars, many requests, no memory: the answers stay in their languages and the books stay balanced."""

from __future__ import annotations

import asyncio
import threading

import pytest

from shared_runtime.async_engine import AsyncEngine
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from tests.conformance.harness import MIXED, Ask, Target, each_target, in_language, run
from tests.conformance.test_capability_matrix import EXAMPLES
from tests.conftest import EngineFactory


def _is_right(ask: Ask, result: Result) -> bool:
    if result.finish_reason == "stop":
        return in_language(ask.constraint, result.text)
    return result.finish_reason == "length"


@each_target
def test_every_kind_shares_a_batch_with_free_requests(target: Target, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    asks = [*MIXED, *(Ask("x", constraint, SamplingParams(max_new_tokens=24, temperature=1.0, seed=2))
                      for kind, (constraint, _, _) in EXAMPLES.items() if target.supports(kind))]
    for ask, result in zip(asks, run(engine, asks), strict=True):
        assert _is_right(ask, result), (ask, result.text, result.error)


@each_target
def test_retraction_at_every_step_changes_no_answer(target: Target, make_engine: EngineFactory) -> None:
    """At each turn in turn, everybody loses their memory and starts again from the text that there is."""
    asks = MIXED[:4]
    settings = {"stage": target.spec.id, "backend": target.backend, "exact": True, "prefix_cache": "naive"}
    undisturbed = [result.token_ids for result in run(make_engine(**settings), asks)]
    for turn in (1, 3, 6):
        engine = make_engine(**settings)
        names = [engine.add_request(ask.prompt, sampling=ask.sampling, constraint=ask.constraint)[0] for ask in asks]
        results: dict[str, Result] = {}
        turns = retracted = 0
        while engine.has_work:
            engine.step()
            turns += 1
            if turns == turn:
                for req in list(engine.scheduler.queues.running):
                    engine.scheduler._builder.retract(req)
                    retracted += 1
            engine.check_integrity()
            results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
        assert retracted > 0
        assert [results[name].token_ids for name in names] == undisturbed


@each_target
def test_sixty_four_grammars_at_once(target: Target, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend, kv_pool_tokens=4096)
    asks = [Ask("x", Constraint.regex(f"(no|nr)\\. {number}[a-f]{{1,2}}"),
                SamplingParams(max_new_tokens=16, temperature=1.0, seed=number)) for number in range(64)]
    results = run(engine, asks)
    assert all(result.finish_reason == "stop" and in_language(ask.constraint, result.text)
               for ask, result in zip(asks, results, strict=True))
    assert len({result.text for result in results}) == 64


@each_target
def test_thirty_two_requests_bring_the_same_new_grammar(target: Target, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    asks = [Ask("x", Constraint.regex("same (old|new) [0-9]{3}"),
                SamplingParams(max_new_tokens=16, temperature=20.0, seed=seed)) for seed in range(32)]
    results = run(engine, asks)
    assert all(result.finish_reason == "stop" and in_language(ask.constraint, result.text)
               for ask, result in zip(asks, results, strict=True))
    assert len({result.text for result in results}) > 8


@each_target
@pytest.mark.slow
def test_thirty_two_threads_bring_the_same_new_grammar(target: Target, make_engine: EngineFactory) -> None:
    """Each thread has an event loop of its own; the engine's thread serves them all."""
    model = make_engine().config.model
    config = EngineConfig(model=model, kv_pool_tokens=2048, stage=target.spec.id, backend=target.backend)
    constraint = Constraint.regex("threads (old|new) [0-9]{3}")
    results: list[Result] = []
    engine = AsyncEngine(config)

    def ask(seed: int) -> None:
        sampling = SamplingParams(max_new_tokens=16, temperature=1.0, seed=seed)
        results.extend(asyncio.run(engine.generate("x", sampling=sampling, constraint=constraint)))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    engine.close()
    assert len(results) == 32
    assert all(result.finish_reason == "stop" and in_language(constraint, result.text) for result in results)


@each_target
@pytest.mark.slow
def test_a_stream_of_grammars_through_a_small_pool(target: Target, make_engine: EngineFactory) -> None:
    """256 requests, 128 grammars, room for a few: retraction, eviction and reuse, with the books checked each turn."""
    engine = make_engine(stage=target.spec.id, backend=target.backend, kv_pool_tokens=160, new_token_ratio=0.1)
    asks = [Ask(f"request {number % 7} ", None if number % 5 == 0 else Constraint.regex(f"[a-d]{{2}}{number % 128}!?"),
                SamplingParams(max_new_tokens=10, temperature=1.0, seed=number)) for number in range(256)]
    for ask, result in zip(asks, run(engine, asks), strict=True):
        assert _is_right(ask, result), (ask, result.text, result.error)
