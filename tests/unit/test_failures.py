"""How long a failure is remembered, and that a compile which was given up is never started twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from shared_runtime.constrain.compiling.compile_pool import CompileJob, CompilePool
from shared_runtime.constrain.compiling.failures import Refusal, blame_of, library_fault, own_error
from shared_runtime.constrain.compiling.grammar_cache import ENTRY_BYTES, GrammarCache
from shared_runtime.constraint import Constraint
from shared_runtime.errors import Blame, ConstraintError, GrammarSyntaxError, GrammarTimeoutError, JumpforwardError

KEY = Constraint.regex("a")


def failure(blame: Blame) -> ConstraintError:
    return ConstraintError("it failed").blamed(blame)


@pytest.mark.parametrize(("error", "blame"), [
    (GrammarSyntaxError("wrong", offset=3), "grammar"), (ValueError("odd"), "grammar"), (AssertionError(), "grammar"),
    (RecursionError("deep"), "grammar"), (BaseException("a panic"), "grammar"), (RuntimeError("rule 3"), "grammar"),
    (GrammarTimeoutError("too many states"), "grammar"),
    (MemoryError(), "unclear"), (OSError(28, "No space left on device"), "unclear"), (BrokenPipeError(), "unclear"),
    (KeyboardInterrupt(), "unclear"), (ImportError("no libfoo.so"), "unclear"), (TimeoutError(), "unclear"),
    (RuntimeError("std::bad_alloc"), "unclear"), (RuntimeError("can't start new thread"), "unclear"),
    (GrammarTimeoutError("too slow").blamed("unclear"), "unclear"), (failure("machine"), "machine"),
], ids=repr)
def test_the_blame_of_a_failure_follows_what_was_raised(error: BaseException, blame: Blame) -> None:
    assert blame_of(error) == blame
    assert own_error(error).blame == blame


def test_an_interrupt_by_the_user_is_no_fault_of_a_library() -> None:
    for signal in (KeyboardInterrupt(), SystemExit(1), GeneratorExit()):
        with pytest.raises(type(signal)):
            library_fault(signal, "r")
    assert "request r" in str(library_fault(BaseException("a panic"), "r"))


def tries(error: ConstraintError, requests: int) -> list[int]:
    """Which of so many requests compile, when every compile fails with `error`."""
    cache: GrammarCache[str] = GrammarCache()
    tried = []
    for number in range(requests):
        if cache.get(KEY) is None:
            tried.append(number)
            cache.refuse(KEY, "refused", error)
    return tried


def test_a_verdict_is_remembered_and_a_fault_of_the_machine_is_not() -> None:
    assert tries(failure("grammar"), 50) == [0]
    assert tries(failure("machine"), 50) == list(range(50))


def test_an_unclear_failure_is_tried_again_by_the_next_request_and_then_ever_more_rarely() -> None:
    assert tries(failure("unclear"), 100) == [0, 1, 3, 7, 15, 31, 63]
    gaps = tries(failure("unclear"), 5000)
    assert gaps[-1] - gaps[-2] == 1024, "there is a longest pause, so nothing is condemned for good"


def test_a_fault_of_the_machine_in_between_is_no_way_around_the_pauses() -> None:
    first = Refusal(failure("unclear"))
    between = Refusal(failure("machine"), Refusal(failure("unclear"), first))
    assert not between.answers()
    third = Refusal(failure("unclear"), between)
    assert [third.answers() for _ in range(4)] == [True, True, True, False]


def test_success_and_reset_end_the_doubt() -> None:
    cache: GrammarCache[str] = GrammarCache()
    for _ in range(4):
        cache.refuse(KEY, "refused", failure("unclear"))
    cache.put(KEY, "grammar", 10)
    assert [cache.get(KEY) for _ in range(5)] == ["grammar"] * 5
    cache.refuse(KEY, "refused", failure("unclear"))
    assert cache.get(KEY) is None
    cache.clear()
    assert (len(cache), cache.total_bytes) == (0, 0)


def test_the_books_of_the_cache_follow_what_it_holds() -> None:
    cache: GrammarCache[str] = GrammarCache(limit_bytes=2 * ENTRY_BYTES + 100)
    error = failure("grammar")
    cache.put(KEY, "grammar", 30)
    assert cache.total_bytes == ENTRY_BYTES + 31
    cache.refuse(KEY, "refused", error)
    assert cache.total_bytes == ENTRY_BYTES + 1 + len(str(error))
    for text in ("b", "c", "d"):
        cache.put(Constraint.regex(text), text, 40)
    assert [cache.get(Constraint.regex(text)) for text in "abcd"] == [None, None, "c", "d"]
    cache.put(Constraint.choice(["xy", "z"]), "large", 100 * ENTRY_BYTES)
    assert (len(cache), cache.total_bytes) == (1, 101 * ENTRY_BYTES + 3)


def test_a_stream_of_tiny_refusals_does_not_fill_the_memory() -> None:
    cache: GrammarCache[str] = GrammarCache(limit_bytes=100 * ENTRY_BYTES)
    for number in range(1000):
        cache.refuse(Constraint.regex(f"({number}"), "refused", failure("grammar"))
    assert len(cache) < 100


# ---------------------------------------------------------------- compiles that were given up


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def counted(gate: threading.Event, result: int | BaseException = 1) -> tuple[list[int], Callable[[], int]]:
    """A compile that waits, and how often it was started."""
    starts: list[int] = []

    def build() -> int:
        starts.append(1)
        gate.wait(30)
        if isinstance(result, BaseException):
            raise result
        return result

    return starts, build


def outcome(job: CompileJob[int], pool: CompilePool[int], now: float) -> int | JumpforwardError | None:
    return pool.outcome(job, int, 5.0, now)


def test_a_compile_that_was_given_up_is_taken_up_and_its_result_is_used(gate: threading.Event) -> None:
    pool: CompilePool[int] = CompilePool(workers=1)
    starts, build = counted(gate)
    for _ in range(20):
        job = pool.submit(build, "key")
        late = outcome(job, pool, time.monotonic() + 6)
        assert isinstance(late, GrammarTimeoutError)
        assert late.blame == "machine"
    assert (len(starts), pool.stuck, pool.exhausted) == (1, 1, False)
    gate.set()
    eventually(job.future.done)
    assert outcome(pool.submit(build, "key"), pool, time.monotonic() + 6) == 1
    assert len(starts) == 1


def test_a_compile_that_fails_after_it_was_given_up_tells_so_once(gate: threading.Event) -> None:
    pool: CompilePool[int] = CompilePool(workers=1)
    starts, build = counted(gate, MemoryError())
    pool.abandon(pool.submit(build, "key"))
    gate.set()
    eventually(lambda: pool.stuck == 0)
    job = pool.submit(build, "key")
    error = outcome(job, pool, time.monotonic())
    assert isinstance(error, JumpforwardError)
    assert error.blame == "unclear"
    pool.abandon(job)
    assert pool.submit(build, "key") is not job, "the next one compiles anew"
    eventually(lambda: len(starts) == 2)


def test_of_results_that_nobody_fetches_only_a_few_are_kept() -> None:
    pool: CompilePool[int] = CompilePool(workers=1, max_stuck=2)
    done = []
    for number in range(10):
        job = pool.submit(lambda number=number: number, number)  # type: ignore[misc]  # mypy: no type for a default
        job.future.result(20)
        pool.abandon(job)
        done.append(job)
    kept = [number for number in range(10) if pool.submit(lambda: -1, number) is done[number]]
    assert kept == [8, 9]
    pool.abandon(done[9])
    pool.forget()
    assert pool.submit(lambda: -1, 9) is not done[9]


def test_without_a_key_every_job_is_its_own(gate: threading.Event) -> None:
    pool: CompilePool[int] = CompilePool(workers=1)
    starts, build = counted(gate)
    first = pool.submit(build)
    eventually(lambda: bool(starts))
    pool.abandon(first)
    assert pool.submit(build) is not first


def test_when_no_thread_can_be_started_the_job_fails_and_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the job counted as running for ever, and its request waited out the time limit."""
    pool: CompilePool[int] = CompilePool(workers=1)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        job = pool.submit(lambda: 1, "key")
    error = outcome(job, pool, time.monotonic())
    assert isinstance(error, ConstraintError)
    assert (error.blame, "can't start new thread" in str(error)) == ("machine", True)
    pool.abandon(job)
    again = pool.submit(lambda: 1, "key")
    assert again.future.result(20) == 1


def test_a_job_that_never_started_is_cancelled_and_leaves_nothing(gate: threading.Event) -> None:
    pool: CompilePool[int] = CompilePool(workers=1)
    _, build = counted(gate)
    first = pool.submit(build, "first")
    starts, waiting = counted(gate)
    job = pool.submit(waiting, "second")
    pool.abandon(job)
    pool.abandon(job)
    assert job.failed
    assert isinstance(outcome(job, pool, time.monotonic()), JumpforwardError)
    gate.set()
    assert first.future.result(20) == 1
    assert starts == []


@pytest.mark.parametrize("result", [None, "text", JumpforwardError], ids=repr)
def test_a_backend_that_returns_no_grammar_has_failed(result: object) -> None:
    """None in particular must not read as "not yet": that request would wait for ever."""
    pool: CompilePool[int] = CompilePool(workers=1)
    job = pool.submit(lambda: result)  # type: ignore[arg-type,return-value]  # that is the point
    eventually(job.future.done)
    error = outcome(job, pool, time.monotonic())
    assert isinstance(error, ConstraintError)
    assert "which is no int" in str(error)
