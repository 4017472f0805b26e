"""Builds that wait on purpose, and the checks of exercise 3."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from exercises.bench import bench, in_place
from jumpforward.exercises.case import Row, Wrong, expect, plain
from shared_runtime.errors import GrammarSyntaxError, GrammarTimeoutError
from stages.stage1_copied_fsm import decoder
from tests.museum.jumps import ask
from tests.museum.rows import row_01_frozen_server as row_1

from .fakes import in_time, settled, until

CacheClass = Callable[[Callable[[str], Any], float], Any]


class Build:
    """Counts its calls, and waits until it may go on where `gates` has the pattern."""

    def __init__(self, **gates: threading.Event) -> None:
        self.calls: dict[str, int] = {}
        self.gates = gates
        self.begun = threading.Semaphore(0)
        self._lock = threading.Lock()

    def __call__(self, pattern: str) -> str:
        with self._lock:
            self.calls[pattern] = self.calls.get(pattern, 0) + 1
        self.begun.release()
        if pattern in self.gates:
            self.gates[pattern].wait(20)
        if "(" in pattern:
            raise GrammarSyntaxError("missing )", where="constraint")
        return pattern.upper()


def at_once(count: int, call: Callable[[], Any]) -> list[Any]:
    """Call from many threads at the same moment; what each got or raised."""
    came: list[Any] = []
    barrier = threading.Barrier(count)

    def work() -> None:
        barrier.wait()
        try:
            came.append(call())
        except Exception as error:
            came.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return came


def begun(build: Build, came: list[Any]) -> None:
    """Wait until something is being built, or there is no more reason to."""
    until(lambda: bool(came) or build.begun.acquire(blocking=False),
          lambda: "get was called, and nothing is being built")
    for one in came:
        if isinstance(one, NotImplementedError):
            raise one


def a_pattern_is_built_once(part: CacheClass, threads: int) -> None:
    """Many ask while it is being built, and one later."""
    build = Build(a=threading.Event())
    cache = part(build, 15.0)
    came = at_once(threads, lambda: cache.get("a"))
    begun(build, came)
    settled()
    build.gates["a"].set()
    until(lambda: len(came) == threads,
          lambda: f"{threads} threads ask for one pattern, which is built, and {threads - len(came)} never returned")
    expect(plain(came) == ["A"] * threads, f"{threads} threads ask for one pattern: they got {came}")
    in_time(lambda: cache.get("a"), "asking again never returned")
    expect(build.calls["a"] == 1, f"{threads} threads ask for one pattern, and it is built {build.calls['a']} times")


def a_failed_build_wakes_everybody(part: CacheClass, threads: int) -> None:
    """An error for each who waits, and for who comes later."""
    gates = {"(": threading.Event()}
    build = Build(**gates)
    cache = part(build, 15.0)
    came = at_once(threads, lambda: cache.get("("))
    begun(build, came)
    settled()
    gates["("].set()
    until(lambda: len(came) == threads,
          lambda: f"the build failed, and {threads - len(came)} of {threads} who waited for it never returned")
    for one in came:
        expect(isinstance(one, GrammarSyntaxError), f"the build raised GrammarSyntaxError, and a caller got {one!r}")
    try:
        got = in_time(lambda: cache.get("("), "whoever asks after a failed build never returned")
    except GrammarSyntaxError:
        return
    raise Wrong(f"whoever asks after a failed build gets {got!r}")


def a_slow_pattern_holds_up_nobody_else(part: CacheClass) -> None:
    """`a` is being built, `b` is asked for."""
    build = Build(a=threading.Event())
    cache = part(build, 15.0)
    begun(build, at_once(1, lambda: cache.get("a")))
    try:
        got = in_time(lambda: cache.get("b"), "asking for one pattern waits for the build of another")
    finally:
        build.gates["a"].set()
    expect(got == "B", f"get('b') gives {got!r}")


def waiting_has_an_end(part: CacheClass) -> None:
    """A build that does not return: the first caller and the second both give up."""
    build = Build(a=threading.Event())
    cache = part(build, 0.1)
    try:
        for turn in ("first", "second"):
            try:
                in_time(lambda: cache.get("a"), f"timeout is 0.1 s, and the {turn} caller waits on and on")
            except GrammarTimeoutError:
                continue
            raise Wrong(f"timeout is 0.1 s, the build is not over, and the {turn} caller got an answer")
    finally:
        build.gates["a"].set()


def the_museum_is_content(part: CacheClass) -> None:
    """Row 1's own check, and its scenario in stage 1."""
    with bench() as made:
        row_1.a_failed_build_wakes_its_waiters(part, made)
        with in_place(decoder, "FSMCache", part):
            row_1.scenario(made)


def stage_1_answers(part: CacheClass) -> None:
    """Three requests, two of them with one regex."""
    asks = [ask(pattern, max_new_tokens=6) for pattern in ("[0-9]{3}", "[0-9]{3}", "(nam|age)")]
    with bench() as made:
        right = made.run(made.engine(1), asks)
        with in_place(decoder, "FSMCache", part):
            got = made.run(made.engine(1), asks)
    for ours, theirs in zip(right, got, strict=True):
        expect(theirs.error is None, f"in stage 1: a request ended with an error: {theirs.error}")
        expect(ours.text == theirs.text, f"in stage 1: the answer is {theirs.text!r}, expected {ours.text!r}")


def picture(part: CacheClass) -> list[Row]:
    """Who gets what."""
    rows = []
    cache = part(Build(), 5.0)
    for pattern, wanted in (("a", "'A'"), ("a", "'A'"), ("(", "GrammarSyntaxError"), ("(", "GrammarSyntaxError")):
        try:
            got = repr(in_time(partial(cache.get, pattern), "never returned"))
        except GrammarSyntaxError as error:
            got = type(error).__name__
        rows.append(Row(f"get({pattern!r})", got, wanted))
    return rows
