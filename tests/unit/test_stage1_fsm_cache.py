"""`FSMCache`: one compile per regex, and nobody waits for ever."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared_runtime.errors import ConstraintError, GrammarSyntaxError, GrammarTimeoutError
from stages.stage1_copied_fsm.fsm import RegexFSM
from stages.stage1_copied_fsm.fsm_cache import FSMCache
from tests.unit.stage1_helpers import compiled, vocabulary_of

Build = Callable[[str], RegexFSM]


def small_fsm(pattern: str) -> RegexFSM:
    return compiled(pattern, vocabulary_of(b"a", b"b"))


def ask_from_threads(cache: FSMCache, pattern: str, count: int) -> list[RegexFSM | BaseException]:
    """What `count` threads get that ask at the same moment."""
    barrier = threading.Barrier(count)

    def ask() -> RegexFSM:
        barrier.wait()
        return cache.get(pattern)

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(ask) for _ in range(count)]
        return [future.exception() or future.result() for future in futures]


def failing(error: Exception) -> Build:
    def build(pattern: str) -> RegexFSM:
        raise error

    return build


def test_thirty_two_threads_with_one_new_regex_compile_it_once() -> None:
    release = threading.Event()
    compiled_patterns: list[str] = []

    def build(pattern: str) -> RegexFSM:
        compiled_patterns.append(pattern)
        release.wait(30)
        return small_fsm(pattern)

    cache = FSMCache(build, timeout=30)
    timer = threading.Timer(0.05, release.set)
    timer.start()
    got = ask_from_threads(cache, "a", 32)
    timer.join()
    assert compiled_patterns == ["a"]
    assert cache.builds == 1
    assert {id(fsm) for fsm in got} == {id(cache.get("a"))}
    assert isinstance(got[0], RegexFSM)


def test_a_failing_build_releases_every_waiter_with_its_error() -> None:
    """Museum row 1: upstream's callers waited for ever, and so did every later request with that regex."""
    error = GrammarSyntaxError("missing )", offset=3)
    cache = FSMCache(failing(error), timeout=30)
    assert ask_from_threads(cache, "(ab", 32) == [error] * 32
    assert cache.builds == 1


def test_an_error_is_remembered_and_does_not_grow() -> None:
    cache = FSMCache(failing(GrammarSyntaxError("missing )", offset=3)), timeout=30)
    depths = []
    for _ in range(3):
        with pytest.raises(GrammarSyntaxError, match="missing") as caught:
            cache.get("(ab")
        depths.append(len(caught.traceback))
    assert cache.builds == 1
    assert depths[0] == depths[2]


def test_a_defect_in_a_build_is_an_error_with_its_cause_and_no_endless_wait() -> None:
    cache = FSMCache(failing(ZeroDivisionError("by zero")), timeout=30)
    for _ in range(2):
        with pytest.raises(ConstraintError, match="ZeroDivisionError: by zero"):
            cache.get("a")


def test_what_the_machine_did_to_a_build_does_not_condemn_the_regex(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[BaseException] = [MemoryError("taken"), GrammarTimeoutError("too slow").blamed("unclear")]

    def build(pattern: str) -> RegexFSM:
        if errors:
            raise errors.pop()
        return small_fsm(pattern)

    cache = FSMCache(build, timeout=30)
    with pytest.raises(GrammarTimeoutError, match="too slow"):
        cache.get("a")
    with pytest.raises(ConstraintError, match="MemoryError: taken"):
        cache.get("a")
    with pytest.raises(ConstraintError, match="MemoryError: taken"):
        cache.get("a")  # the second failure in a row answers one request
    assert cache.builds == 2
    assert isinstance(cache.get("a"), RegexFSM)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            with pytest.raises(ConstraintError, match="can't start new thread"):
                cache.get("b")
    assert isinstance(cache.get("b"), RegexFSM)


def test_a_regex_that_eats_the_memory_each_time_is_built_ever_more_rarely() -> None:
    cache = FSMCache(failing(MemoryError()), timeout=30)
    for _ in range(40):
        with pytest.raises(ConstraintError):
            cache.get("a")
    assert cache.builds == 6


def test_a_build_that_does_not_end_costs_the_timeout_and_no_more() -> None:
    release = threading.Event()

    def build(pattern: str) -> RegexFSM:
        release.wait(30)
        return small_fsm(pattern)

    cache = FSMCache(build, timeout=0.02)
    with pytest.raises(GrammarTimeoutError, match=r"longer than 0\.02 s"):
        cache.get("a")
    cache.timeout = 1000
    with pytest.raises(GrammarTimeoutError):
        cache.get("a")  # at once: nobody waits a second time for what did not come
    release.set()
    for _ in range(1000):
        with contextlib.suppress(GrammarTimeoutError):
            assert isinstance(cache.get("a"), RegexFSM), "what came too late for one is there for the next"
            break
        time.sleep(0.01)
    else:
        pytest.fail("the FSM never came")
    assert cache.builds == 1


def test_one_slow_regex_does_not_hold_up_another() -> None:
    release = threading.Event()

    def build(pattern: str) -> RegexFSM:
        if pattern == "a":
            release.wait(30)
        return small_fsm(pattern)

    cache = FSMCache(build, timeout=30)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cache.get, "a")
        assert isinstance(cache.get("b"), RegexFSM)
        assert not slow.done()
        release.set()
        assert isinstance(slow.result(30), RegexFSM)


def test_the_least_recently_used_is_forgotten_first() -> None:
    cache = FSMCache(small_fsm, timeout=30, max_entries=2)
    kept = cache.get("a")
    cache.get("b")
    assert cache.get("a") is kept
    cache.get("ab")
    assert cache.get("a") is kept
    assert cache.builds == 3
    cache.get("b")
    assert cache.builds == 4


def test_memory_is_bounded_and_the_newest_always_stays() -> None:
    cache = FSMCache(small_fsm, timeout=30, max_bytes=1)
    newest = [cache.get(pattern) for pattern in ("a", "b", "ab")][-1]
    assert cache.get("ab") is newest
    cache.get("a")
    assert cache.builds == 4
