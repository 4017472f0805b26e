"""The behaviour cases of the grammar manager, written out by hand and named after their ids."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import GrammarSyntaxError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import AdmitState
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary
from stages.stage5_backend_jump.base_grammar_backend import BaseGrammarObject, InvalidGrammarObject
from stages.stage5_backend_jump.decoder import GrammarManagerPolicy
from stages.stage5_backend_jump.grammar_manager import Decision, GrammarManager
from tests.conftest import EngineFactory
from tests.unit.stage5_helpers import SMALL, A, ScriptedBackend, WordGrammar, context_over, request

pytestmark = pytest.mark.model

BAD, GOOD = Constraint.regex("bad"), Constraint.regex("[0-9]{4}")


class Digits(WordGrammar):
    """Any four tokens that are the same digit; raises at its fifth accept when it is told to."""

    def __init__(self, vocabulary: Vocabulary, digit: int, *, fails: bool) -> None:
        super().__init__(vocabulary, [digit] * 8)
        self.fails = fails

    def copy(self) -> Digits:
        return Digits(self.vocabulary, self.word[0], fails=self.fails)

    def _accept_text(self, token_id: int) -> bool:
        if self.fails and self.accepted == 4:
            raise RuntimeError("rollback window exhausted")
        return super()._accept_text(token_id)


def scripted(engine: Engine, script: ScriptedBackend) -> GrammarManager:
    """Put a scripted backend into a running engine's manager."""
    policy = engine.parts.policy
    assert isinstance(policy, GrammarManagerPolicy)
    policy.manager._backend = script
    return policy.manager


def run_all(engine: Engine, names: list[str]) -> dict[str, Result]:
    done: dict[str, Result] = {}
    while engine.has_work:
        engine.step()
        engine.check_integrity()
        done |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    assert set(done) == set(names)
    return done


def test_hand_057_a_compile_that_raises_reaches_everybody_who_waits_and_is_remembered(
        make_engine: EngineFactory) -> None:
    engine = make_engine(stage="stage5_backend_jump")
    digit = engine.tokenizer.encode("7")[0]

    def compile_it(constraint: Constraint) -> BaseGrammarObject:
        if constraint == BAD:
            time.sleep(0.5)
            raise GrammarSyntaxError("the compile failed late")
        return Digits(engine.tokenizer.vocabulary, digit, fails=False)

    backend = ScriptedBackend(context_over(engine.tokenizer.vocabulary, engine.tokenizer), compile_it)
    manager = scripted(engine, backend)
    sampling = SamplingParams(max_new_tokens=12)
    names = [engine.add_request("x", rid=f"bad-{index}", constraint=BAD, sampling=sampling)[0] for index in range(3)]
    names += engine.add_request("x", rid="good", constraint=GOOD, sampling=sampling)
    names += engine.add_request("x", rid="free", sampling=sampling)
    done = run_all(engine, names)
    assert [done[f"bad-{index}"].finish_reason for index in range(3)] == ["error"] * 3
    assert all("failed late" in str(done[f"bad-{index}"].error) for index in range(3))
    assert (done["good"].text, done["good"].finish_reason) == ("7" * 8, "stop")
    assert done["free"].finish_reason in ("length", "stop")
    assert isinstance(manager.cache.get(BAD), InvalidGrammarObject)
    names = engine.add_request("x", rid="fourth", constraint=BAD, sampling=sampling)
    engine.step()
    fourth, = [event.result for event in engine.take_events()]
    assert fourth is not None
    assert "failed late" in str(fourth.error)
    assert backend.builds[BAD] == 1


def test_hand_059_a_failing_accept_ends_that_request_alone_and_its_memory_is_freed(make_engine: EngineFactory) -> None:
    engine = make_engine(stage="stage5_backend_jump", prefix_cache="naive")
    digit = engine.tokenizer.encode("7")[0]

    def compile_it(constraint: Constraint) -> BaseGrammarObject:
        return Digits(engine.tokenizer.vocabulary, digit, fails=constraint == BAD)

    scripted(engine, ScriptedBackend(context_over(engine.tokenizer.vocabulary, engine.tokenizer), compile_it))
    sampling = SamplingParams(max_new_tokens=12)
    names = [engine.add_request("x", rid=rid, constraint=BAD if rid == "X" else GOOD, sampling=sampling)[0]
             for rid in ("a", "X", "b", "c")]
    done = run_all(engine, names)
    assert done["X"].finish_reason == "error"
    assert "rollback window exhausted" in str(done["X"].error)
    assert done["X"].token_ids == [digit] * 4
    for rid in ("a", "b", "c"):
        assert (done[rid].text, done[rid].finish_reason) == ("7" * 8, "stop")
    assert engine.parts.memory.pool.available == engine.parts.memory.pool.size


class ThreadRanks:
    """Two ranks in two threads that meet in each exchange, as ranks of a real group do."""

    def __init__(self) -> None:
        self.slots: list[Decision] = [Decision(frozenset(), {})] * 2
        self.barrier = threading.Barrier(2)


@dataclass
class OneOfTwo:
    """A rank's end of the exchange."""

    ranks: ThreadRanks
    number: int

    def from_each(self, value: Decision) -> list[Decision]:
        self.ranks.slots[self.number] = value
        self.ranks.barrier.wait(20)
        gathered = list(self.ranks.slots)
        self.ranks.barrier.wait(20)
        return gathered


def test_hand_061_ranks_admit_the_intersection_by_request_and_not_by_count(tokenizer: Tokenizer) -> None:
    constraints = {rid: Constraint.regex(rid) for rid in ("r1", "r2", "r3")}
    late, ranks = threading.Event(), ThreadRanks()

    def slow_rank(constraint: Constraint) -> BaseGrammarObject:
        if constraint == constraints["r2"]:
            late.wait(30)
        return WordGrammar(SMALL, [A])

    scripts = (lambda constraint: WordGrammar(SMALL, [A]), slow_rank)
    managers = [GrammarManager(ScriptedBackend(context_over(SMALL, tokenizer), script), GrammarLimits(),
                               OneOfTwo(ranks, number)) for number, script in enumerate(scripts)]
    for manager in managers:
        for rid, constraint in constraints.items():
            assert manager.admit(request(rid, constraint)).state is AdmitState.COMPILING

    def compiled(number: int) -> set[str]:
        return {key.source for key, pending in managers[number]._pending.items() if pending.job.future.done()}

    def polled(manager: GrammarManager) -> list[str]:
        return [req.rid for req, answer in manager.poll() if answer.state is AdmitState.READY]

    with ThreadPoolExecutor(2) as threads:
        wait_until(lambda: compiled(0) == {"r1", "r2", "r3"} and compiled(1) == {"r1", "r3"})
        assert list(threads.map(polled, managers)) == [["r1", "r3"]] * 2
        assert list(threads.map(polled, managers)) == [[]] * 2
        late.set()
        wait_until(lambda: compiled(1) == {"r2"})
        assert list(threads.map(polled, managers)) == [["r2"]] * 2


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)
