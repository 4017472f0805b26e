"""The tokens are those of the plain loop: on the conformance cases, in mixed company, under random traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint, ConstraintKind
from shared_runtime.engine import Engine
from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import StageOptions
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from tests.conformance.harness import Ask, cases
from tests.conftest import EngineFactory
from tests.execution import overlap_runs
from tests.execution.overlap_runs import COMPANY, drive, each_scheme, told

NO_REWRITING = StageOptions(jump_forward=False)
"""For the plain loop of stage 4: overlap switches it off, and a jump spells the text in another way."""

KINDS: tuple[ConstraintKind, ...] = ("regex", "json_schema", "ebnf", "structural_tag")


def _asks_of(kind: ConstraintKind) -> list[Ask]:
    """The cases of a kind as requests, each with the next seed; some greedy."""
    return [Ask("Answer: ", case.constraint, SamplingParams(max_new_tokens=10, temperature=float(index % 3 > 0),
                                                            seed=index))
            for index, case in enumerate(cases()) if case.kind == kind and case.constraint is not None]


@each_scheme
@pytest.mark.parametrize("backend", ["xgrammar", "llguidance", "outlines"])
def test_company_gets_the_tokens_of_the_plain_loop(stage: int, backend: str, make_engine: EngineFactory) -> None:
    """Bit by bit in exact mode, log-probabilities and counts too; in chunks, and where memory is short."""
    plain = [told(result) for result in drive(make_engine(**overlap_runs.settings(
        stage, backend=backend, overlap=False, options=NO_REWRITING)), COMPANY)]
    for more in ({}, {"chunked_prefill_size": 2}, {"kv_pool_tokens": 100, "new_token_ratio": 0.1},
                 {"max_running_requests": 2}, {"schedule_policy": "lpm", "prefix_cache": "naive"}):
        results = drive(make_engine(**overlap_runs.settings(stage, backend=backend, **more)), COMPANY)
        for result, wanted in zip(results, plain, strict=True):
            same = told(result)
            if more:  # another way through memory costs other passes, and no other token
                same, wanted = same[:-1], wanted[:-1]
            assert same == wanted


@each_scheme
def test_fast_mode_gives_the_same_greedy_tokens(stage: int, make_engine: EngineFactory) -> None:
    asks = [Ask(ask.prompt, ask.constraint, SamplingParams(max_new_tokens=12)) for ask in COMPANY]
    plain, overlapped = ([told(result)[:2] for result in drive(make_engine(**overlap_runs.settings(
        stage, exact=False, overlap=overlap, options=NO_REWRITING)), asks)] for overlap in (False, True))
    assert overlapped == plain


@each_scheme
@pytest.mark.parametrize("kind", KINDS)
def test_every_conformance_case_gets_the_tokens_of_the_plain_loop(
        stage: int, kind: ConstraintKind, make_engine: EngineFactory) -> None:
    asks = _asks_of(kind)
    assert asks
    plain, overlapped = (drive(make_engine(**overlap_runs.settings(
        stage, overlap=overlap, options=NO_REWRITING, kv_pool_tokens=4096, max_running_requests=32)), asks)
        for overlap in (False, True))
    for ask, result, wanted in zip(asks, overlapped, plain, strict=True):
        assert told(result) == told(wanted), ask


def test_a_draft_that_was_right_is_not_fed_again(make_engine: EngineFactory) -> None:
    """Its keys and values are in memory: with overlap too, a pass feeds the newest token and the next draft."""
    fed: dict[bool, list[list[int]]] = {False: [], True: []}
    for overlap, lengths in fed.items():
        engine = make_engine(**overlap_runs.settings(5, overlap=overlap, options=StageOptions(backend_jump="draft")))
        forward = engine.parts.runner.forward

        def noting(batch: ForwardBatch, forward: Callable[[ForwardBatch], Tensor] = forward,
                   lengths: list[list[int]] = lengths) -> Tensor:
            lengths.append(batch.extend_lens)
            return forward(batch)

        engine.parts.runner.forward = noting  # type: ignore[method-assign]  # the same, and written down
        result = engine.generate_one("x", constraint=Constraint.regex("(12345678, ){3}[0-9]"))
        assert result.counts["accepted"] > 10
    assert fed[True] == fed[False]


# random traffic

PROMPTS = ("one two three four", "one two", "dates: ", "x")
BOUNDS = (None, None, Constraint.regex("[a-z ]{3,30}"), Constraint.regex("([0-9]{2} ){40}"),
          Constraint.choice(["yes", "no", "not at all"]), Constraint.regex("("))
STOPS: tuple[tuple[str, ...], ...] = ((), ("e",), ("9", "the "))


@dataclass(frozen=True)
class Wish:
    """A request that comes before turn `turn`, and may be aborted or lose its memory some turns later."""

    turn: int
    prompt: int
    bound: int
    stop: int
    seed: int
    tokens: int
    abort_after: int | None
    retract_after: int | None

    @property
    def ask(self) -> Ask:
        return Ask(PROMPTS[self.prompt], BOUNDS[self.bound], SamplingParams(
            max_new_tokens=self.tokens, temperature=float(self.seed > 0), seed=self.seed, stop=STOPS[self.stop],
            logprobs=self.seed == 1))


WISHES = st.lists(st.builds(
    Wish, turn=st.integers(0, 12), prompt=st.integers(0, len(PROMPTS) - 1), bound=st.integers(0, len(BOUNDS) - 1),
    stop=st.integers(0, len(STOPS) - 1), seed=st.integers(0, 2), tokens=st.integers(1, 14),
    abort_after=st.none() | st.integers(0, 8), retract_after=st.none() | st.integers(0, 8)), min_size=1, max_size=7)


class Traffic:
    """Engines that live as long as the test, so that each schedule also meets what those before left in the cache."""

    def __init__(self, model: Path) -> None:
        common = {"model": str(model), "exact": True, "limits": GrammarLimits(compile_timeout=120.0)}
        self._alone: dict[str, Result] = {}
        self._plain = Engine(EngineConfig(stage=5, overlap=False, **common))  # type: ignore[arg-type]
        self.overlapping = {stage: Engine(EngineConfig(
            stage=stage, backend="xgrammar", overlap=True, kv_pool_tokens=90, new_token_ratio=0.1,
            chunked_prefill_size=3, max_running_requests=4, **common)) for stage in (4, 5)}  # type: ignore[arg-type]

    def alone(self, wish: Wish) -> Result:
        """What a request gets when nobody else is there."""
        ask = wish.ask
        if repr(ask) not in self._alone:
            self._alone[repr(ask)] = self._plain.generate([ask.prompt], constraint=ask.constraint,
                                                          sampling=ask.sampling)[0]
        return self._alone[repr(ask)]

    def run(self, stage: int, wishes: list[Wish]) -> None:
        """A schedule; every request gets what it gets alone, or the beginning of it when it was aborted."""
        engine, names, results, turn = self.overlapping[stage], dict[str, Wish](), dict[str, Result](), 0
        while turn < 14 or engine.has_work:
            for wish in [wish for wish in wishes if wish.turn == turn]:
                ask = wish.ask
                names[engine.add_request(ask.prompt, sampling=ask.sampling, constraint=ask.constraint)[0]] = wish
            running = {req.rid: req for req in engine.scheduler.queues.in_memory}
            for name, wish in names.items():
                if name not in results and wish.abort_after == turn - wish.turn:
                    engine.abort(name)
                if name in running and wish.retract_after == turn - wish.turn:
                    engine.scheduler._builder.retract(running[name])
            engine.step()
            turn += 1
            engine.check_integrity()
            results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
        assert engine.parts.memory.room == 90
        assert results.keys() == names.keys()
        for name, wish in names.items():
            self._check(results[name], wish)

    def _check(self, result: Result, wish: Wish) -> None:
        alone = self.alone(wish)
        if result.finish_reason == "abort":
            assert alone.token_ids[:len(result.token_ids)] == result.token_ids
            return
        assert told(result)[:-1] == told(alone)[:-1]
        if result.metrics.retractions == 0:
            assert result.counts["masks"] == alone.counts["masks"]

    def close(self) -> None:
        """End the threads."""
        for engine in (self._plain, *self.overlapping.values()):
            engine.close()


@pytest.fixture(scope="module")
def traffic(tiny_model: Path) -> Iterator[Traffic]:
    """One for all schedules."""
    made = Traffic(tiny_model)
    yield made
    made.close()


@each_scheme
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(wishes=WISHES)
def test_random_traffic_gets_what_each_request_gets_alone(stage: int, traffic: Traffic, wishes: list[Wish]) -> None:
    traffic.run(stage, wishes)
