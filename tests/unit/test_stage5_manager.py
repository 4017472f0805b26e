"""Stage 5's grammar manager: one compile a key, no wait without an end, and the same answer on every rank."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from shared_runtime.constrain.compiling.compile_pool import CompilePool
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, GrammarSyntaxError, GrammarTimeoutError, RequestError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import Admission, AdmitState
from shared_runtime.request import Request
from shared_runtime.tokenizer import Tokenizer
from stages.stage5_backend_jump.base_grammar_backend import BaseGrammarObject, Compiled, InvalidGrammarObject
from stages.stage5_backend_jump.grammar_manager import Decision, GrammarManager, agree
from tests.unit.stage5_helpers import SMALL, A, B, FakeRanks, ScriptedBackend, WordGrammar, context_over, request

pytestmark = pytest.mark.model

ONE, TWO, THREE = (Constraint.regex(text) for text in ("one", "two", "three"))


@pytest.fixture(scope="module")
def tokenizer(embedded_folder) -> Tokenizer:  # type: ignore[no-untyped-def]  # a fixture of conftest
    return Tokenizer.from_folder(embedded_folder)


class Gate:
    """Compiles that wait until the test lets them go."""

    def __init__(self) -> None:
        self.open = {ONE: threading.Event(), TWO: threading.Event(), THREE: threading.Event()}
        self.errors: dict[Constraint, BaseException] = {}

    def __call__(self, constraint: Constraint) -> BaseGrammarObject:
        self.open[constraint].wait(30)
        if constraint in self.errors:
            raise self.errors[constraint]
        return WordGrammar(SMALL, [A, B])


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    for event in made.open.values():
        event.set()


@pytest.fixture
def backend(gate: Gate, tokenizer: Tokenizer) -> ScriptedBackend:
    return ScriptedBackend(context_over(SMALL, tokenizer), gate)


@pytest.fixture
def manager(backend: ScriptedBackend) -> GrammarManager:
    return GrammarManager(backend, GrammarLimits())


def settle(manager: GrammarManager, count: int) -> dict[str, Admission]:
    """Poll until `count` requests have an answer."""
    done: dict[str, Admission] = {}
    deadline = time.monotonic() + 20
    while len(done) < count and time.monotonic() < deadline:
        done |= {req.rid: admission for req, admission in manager.poll()}
        time.sleep(0.001)
    assert len(done) == count
    return done


def states(answers: dict[str, Admission]) -> dict[str, AdmitState]:
    return {rid: admission.state for rid, admission in answers.items()}


def test_equal_new_constraints_compile_once_however_many_wait(
        manager: GrammarManager, backend: ScriptedBackend, gate: Gate) -> None:
    """Museum row 69: upstream lost the sharing of compiles in flight in #6188."""
    reqs = [request(f"r{index}", ONE) for index in range(8)]
    assert all(manager.admit(req).state is AdmitState.COMPILING for req in reqs)
    gate.open[ONE].set()
    assert states(settle(manager, 8)) == {req.rid: AdmitState.READY for req in reqs}
    assert backend.builds == {ONE: 1}
    assert manager.builds == 1
    grammars = [req.grammar for req in reqs]
    assert len({id(grammar) for grammar in grammars}) == 8
    late = request("late", ONE)
    assert manager.admit(late).state is AdmitState.READY
    assert backend.builds == {ONE: 1}


def test_a_request_gets_a_copy_and_the_cached_grammar_stays_at_its_beginning(
        manager: GrammarManager, gate: Gate) -> None:
    gate.open[ONE].set()
    first, second = request("first", ONE), request("second", ONE)
    manager.admit(first)
    settle(manager, 1)
    assert isinstance(first.grammar, WordGrammar)
    first.grammar.accept_token(A)
    manager.admit(second)
    assert isinstance(second.grammar, WordGrammar)
    assert (first.grammar.accepted, second.grammar.accepted) == (1, 0)


def test_who_is_ready_later_does_not_hold_up_who_is_ready_now(manager: GrammarManager, gate: Gate) -> None:
    """Upstream's first queue stopped at the first unfinished one, and waited 50 ms for it."""
    for rid, key in (("slow", ONE), ("fast", TWO)):
        manager.admit(request(rid, key))
    gate.open[TWO].set()
    assert states(settle(manager, 1)) == {"fast": AdmitState.READY}
    gate.open[ONE].set()
    assert states(settle(manager, 1)) == {"slow": AdmitState.READY}


@pytest.mark.parametrize(("error", "expected"), [
    (GrammarSyntaxError("wrong", offset=3), GrammarSyntaxError), (ValueError("odd"), ConstraintError),
    (RecursionError("deep"), ConstraintError), (BaseException("a panic of the library"), ConstraintError),
    (AssertionError(), ConstraintError), (SystemExit(3), ConstraintError),
], ids=lambda value: getattr(value, "__name__", None) or type(value).__name__)
def test_whatever_a_compile_raises_is_an_error_of_its_requests_and_is_remembered(
        manager: GrammarManager, backend: ScriptedBackend, gate: Gate, error: BaseException,
        expected: type[Exception]) -> None:
    """Museum rows 35, 37 and 41."""
    gate.errors[ONE] = error
    gate.open[ONE].set()
    reqs = [request("x", ONE), request("y", ONE)]
    for req in reqs:
        manager.admit(req)
    answers = settle(manager, 2)
    assert states(answers) == {"x": AdmitState.REJECTED, "y": AdmitState.REJECTED}
    assert all(isinstance(answer.error, expected) for answer in answers.values())
    assert isinstance(manager.cache.get(ONE), InvalidGrammarObject)
    again = manager.admit(request("z", ONE))
    assert again.state is AdmitState.REJECTED
    assert str(again.error) == str(answers["x"].error)
    assert backend.builds == {ONE: 1}
    assert all(req.grammar is None for req in reqs)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.mark.parametrize("group", [None, FakeRanks()], ids=["one rank", "two ranks"])
def test_a_compile_without_an_end_times_out_for_every_number_of_ranks(
        backend: ScriptedBackend, gate: Gate, group: FakeRanks | None) -> None:
    """Museum row 44: upstream's time limit stood in the branch for several ranks."""
    clock = Clock()
    manager = GrammarManager(backend, GrammarLimits(compile_timeout=5.0), group, clock=clock)
    manager.admit(request("endless", ONE))
    assert manager.poll() == []
    clock.ahead = 6.0
    answers = settle(manager, 1)
    assert isinstance(answers["endless"].error, GrammarTimeoutError)
    assert "5 s" in str(answers["endless"].error)
    assert manager.stuck == 1
    for number in range(10):
        manager.admit(request(f"again-{number}", ONE))
        assert states(settle(manager, 1)) == {f"again-{number}": AdmitState.REJECTED}
    assert (backend.builds, manager.stuck) == ({ONE: 1}, 1)
    gate.open[ONE].set()
    deadline = time.monotonic() + 10
    while manager.stuck and time.monotonic() < deadline:
        time.sleep(0.001)
    assert manager.stuck == 0
    if group is not None:
        group.other = Decision(frozenset({ONE}), {})
    manager.admit(request("late", ONE))
    assert states(settle(manager, 1)) == {"late": AdmitState.READY}
    assert backend.builds == {ONE: 1}


def test_what_the_machine_did_to_a_compile_does_not_condemn_the_grammar(
        manager: GrammarManager, backend: ScriptedBackend, gate: Gate) -> None:
    gate.open[ONE].set()
    gate.errors[ONE] = MemoryError("a neighbour took it all")
    manager.admit(request("x", ONE))
    answer = settle(manager, 1)["x"]
    assert (answer.state, isinstance(answer.error, ConstraintError)) == (AdmitState.REJECTED, True)
    assert "MemoryError" in str(answer.error)
    gate.errors.clear()
    manager.admit(request("y", ONE))
    assert states(settle(manager, 1)) == {"y": AdmitState.READY}
    assert backend.builds == {ONE: 2}


def test_a_grammar_that_eats_the_memory_each_time_is_compiled_ever_more_rarely(
        manager: GrammarManager, backend: ScriptedBackend, gate: Gate) -> None:
    gate.open[ONE].set()
    gate.errors[ONE] = MemoryError()
    for number in range(40):
        if manager.admit(request(f"{number}", ONE)).state is AdmitState.COMPILING:
            settle(manager, 1)
    assert backend.builds == {ONE: 6}


def test_ranks_try_again_together_whoever_failed(tokenizer: Tokenizer) -> None:
    """One rank runs out of memory where the other compiles: both refuse, and both try again at the same request."""
    other = Decision(frozenset(), {ONE: ConstraintError("no memory on rank 1").blamed("unclear")})
    managers = [GrammarManager(ScriptedBackend(context_over(SMALL, tokenizer), lambda _: WordGrammar(SMALL, [A])),
                               GrammarLimits(), FakeRanks(other, first=first)) for first in (True, False)]
    answers: list[list[AdmitState]] = [[], []]
    for number in range(9):
        for manager, seen in zip(managers, answers, strict=True):
            admission = manager.admit(request(f"r{number}", ONE))
            seen.append(admission.state)
            if admission.state is AdmitState.COMPILING:
                settle(manager, 1)
    assert answers[0] == answers[1]
    assert [index for index, state in enumerate(answers[0]) if state is AdmitState.COMPILING] == [0, 1, 3, 7]


def test_an_aborted_compile_is_not_started_twice(manager: GrammarManager, backend: ScriptedBackend, gate: Gate) -> None:
    """Else a client that asks and leaves, over and over, takes every thread with one grammar."""
    for number in range(20):
        manager.admit(request(f"r{number}", ONE))
        manager.cancel(f"r{number}")
    assert manager.stuck <= 1
    gate.open[ONE].set()
    manager.admit(request("stays", ONE))
    assert states(settle(manager, 1)) == {"stays": AdmitState.READY}
    assert backend.builds == {ONE: 1}


@pytest.mark.parametrize("made", [None, "a grammar", ConstraintError("returned, not raised")], ids=repr)
def test_a_backend_that_returns_something_else_fails_its_requests(tokenizer: Tokenizer, made: object) -> None:
    class Odd(ScriptedBackend):
        def init_value(self, constraint: Constraint) -> Compiled:
            return made  # type: ignore[return-value]  # a third party's backend need not be typed

    manager = GrammarManager(Odd(context_over(SMALL, tokenizer), lambda _: WordGrammar(SMALL, [A])), GrammarLimits())
    manager.admit(request("r", ONE))
    assert "which is no Compiled" in str(settle(manager, 1)["r"].error)


def test_waiting_for_a_thread_does_not_count_as_compiling(backend: ScriptedBackend, gate: Gate) -> None:
    manager = GrammarManager(backend, GrammarLimits(compile_timeout=0.5), pool=CompilePool(workers=1))
    gate.open[TWO].set()
    for rid, key in (("first", ONE), ("second", TWO)):
        manager.admit(request(rid, key))
    time.sleep(0.6)
    assert states(settle(manager, 2)) == {"first": AdmitState.REJECTED, "second": AdmitState.READY}


def test_when_every_thread_is_stuck_new_requests_get_an_error_and_not_an_endless_wait(
        backend: ScriptedBackend, gate: Gate) -> None:
    clock = Clock()
    manager = GrammarManager(backend, GrammarLimits(compile_timeout=5.0), clock=clock,
                             pool=CompilePool(workers=1, max_stuck=0))
    manager.admit(request("stuck", ONE))
    clock.ahead = 6.0
    settle(manager, 1)
    manager.admit(request("behind", TWO))
    clock.ahead = 12.0
    answers = settle(manager, 1)
    assert "hold every thread" in str(answers["behind"].error)
    clock.ahead = 0.0
    gate.open[ONE].set()
    gate.open[THREE].set()
    manager.admit(request("after", THREE))
    assert states(settle(manager, 1)) == {"after": AdmitState.READY}


def test_an_aborted_request_does_not_come_back_and_aborting_twice_is_aborting_once(
        manager: GrammarManager, backend: ScriptedBackend, gate: Gate) -> None:
    """Museum rows 44 and 45."""
    for rid in ("gone", "stays"):
        manager.admit(request(rid, ONE))
    manager.admit(request("alone", TWO))
    for rid in ("gone", "gone", "alone", "alone", "never seen"):
        manager.cancel(rid)
    gate.open[ONE].set()
    gate.open[TWO].set()
    assert states(settle(manager, 1)) == {"stays": AdmitState.READY}
    assert manager.poll() == []
    manager.admit(request("anew", TWO))
    assert states(settle(manager, 1)) == {"anew": AdmitState.READY}


def test_a_compile_that_nobody_waits_for_does_not_start(backend: ScriptedBackend, gate: Gate) -> None:
    manager = GrammarManager(backend, GrammarLimits(), pool=CompilePool(workers=1))
    manager.admit(request("first", ONE))
    manager.admit(request("queued", TWO))
    manager.cancel("queued")
    gate.open[ONE].set()
    gate.open[TWO].set()
    settle(manager, 1)
    assert backend.builds == {ONE: 1}


def test_reset_empties_this_cache_and_the_librarys(
        manager: GrammarManager, backend: ScriptedBackend, gate: Gate) -> None:
    """Museum row 59."""
    gate.open[ONE].set()
    manager.admit(request("r", ONE))
    settle(manager, 1)
    manager.reset()
    assert (len(manager.cache), manager.cache.total_bytes, backend.resets) == (0, 0, 1)
    assert manager.admit(request("s", ONE)).state is AdmitState.COMPILING
    settle(manager, 1)
    assert backend.builds == {ONE: 2}


def test_without_a_backend_every_constraint_is_refused_by_name_and_nothing_is_asserted() -> None:
    """Museum row 51."""
    manager = GrammarManager(None, GrammarLimits())
    refused = manager.admit(request("r", Constraint.json_object()))
    assert refused.state is AdmitState.REJECTED
    assert "json_object" in str(refused.error)
    assert manager.admit(request("free")).state is AdmitState.READY
    manager.reset()


@pytest.mark.parametrize("two_things", [
    Constraint("json_schema", source="{}", choices=("a",)), Constraint("structural_tag", source="{}", choices=("a",)),
    Constraint("choice", source="a", choices=("a",)), Constraint("json_object", source="{}"),
], ids=lambda constraint: constraint.kind)
def test_a_constraint_that_says_two_things_is_refused(manager: GrammarManager, two_things: Constraint) -> None:
    """Museum row 68."""
    refused = manager.admit(request("r", two_things))
    assert refused.state is AdmitState.REJECTED
    assert isinstance(refused.error, RequestError)


def test_ranks_agree_on_sets() -> None:
    error, other = ConstraintError("x"), ConstraintError("y")
    agreed = agree([Decision(frozenset({ONE, TWO}), {}), Decision(frozenset({TWO, THREE}), {ONE: error}),
                    Decision(frozenset({TWO}), {ONE: other})])
    assert agreed.ready == {TWO}
    assert agreed.failed == {ONE: error}
    assert agree([Decision(frozenset({ONE}), {}), Decision(frozenset({ONE}), {ONE: error})]).ready == frozenset()


def test_a_rank_that_is_ahead_waits_and_one_that_fails_fails_everywhere(
        backend: ScriptedBackend, gate: Gate) -> None:
    """Museum rows 36, 43 and 56: also the cache is written only where all ranks agree."""
    ranks = FakeRanks()
    manager = GrammarManager(backend, GrammarLimits(), ranks)
    for rid, key in (("r1", ONE), ("r2", TWO)):
        gate.open[key].set()
        manager.admit(request(rid, key))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and (not ranks.asked or ranks.asked[-1].ready != {ONE, TWO}):
        assert manager.poll() == []
    assert len(manager.cache) == 0
    assert manager.admit(request("r3", ONE)).state is AdmitState.COMPILING
    ranks.other = Decision(frozenset({TWO}), {})
    assert [req.rid for req, _ in manager.poll()] == ["r2"]
    ranks.other = Decision(frozenset(), {ONE: ConstraintError("out of memory on rank 1")})
    answers = {req.rid: admission for req, admission in manager.poll()}
    assert states(answers) == {"r1": AdmitState.REJECTED, "r3": AdmitState.REJECTED}
    assert "rank 1" in str(answers["r1"].error)
    assert isinstance(manager.cache.get(ONE), InvalidGrammarObject)


def test_requests_come_back_in_the_order_they_arrived(manager: GrammarManager, gate: Gate) -> None:
    for rid, key in (("c", THREE), ("a", ONE), ("c2", THREE), ("b", TWO)):
        manager.admit(request(rid, key))
    for event in gate.open.values():
        event.set()
    time.sleep(0.05)
    done: list[Request] = []
    deadline = time.monotonic() + 20
    while len(done) < 4 and time.monotonic() < deadline:
        done += [req for req, _ in manager.poll()]
    assert sorted(req.rid for req in done) == ["a", "b", "c", "c2"]
    if done[0].rid == "c":
        assert done[1].rid == "c2"


def test_the_pool_runs_no_more_side_by_side_than_it_may() -> None:
    pool: CompilePool[int] = CompilePool(workers=2)
    running, most, lock, go = [0], [0], threading.Lock(), threading.Event()

    def build() -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        go.wait(10)
        with lock:
            running[0] -= 1
        return 1

    futures: list[Future[int]] = [pool.submit(build).future for _ in range(6)]
    time.sleep(0.05)
    assert running[0] == 2
    go.set()
    assert [future.result(10) for future in futures] == [1] * 6
    assert most[0] == 2


def test_a_compiled_value_comes_with_its_warnings(tokenizer: Tokenizer, gate: Gate) -> None:
    class Warning(ScriptedBackend):
        def init_value(self, constraint: Constraint) -> Compiled:
            return Compiled(WordGrammar(SMALL, [A]), ("a part is dropped",))

    manager = GrammarManager(Warning(context_over(SMALL, tokenizer), gate), GrammarLimits())
    req = request("r", ONE)
    manager.admit(req)
    settle(manager, 1)
    assert req.warnings == ["a part is dropped"]
