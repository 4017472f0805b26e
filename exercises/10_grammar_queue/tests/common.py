"""Futures and a clock in the hands of the test, and the checks of exercise 10."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from exercises.bench import bench, in_place
from jumpforward.exercises.case import Row, expect, plain
from shared_runtime import policy
from shared_runtime.constraint import Constraint
from shared_runtime.errors import GrammarTimeoutError, JumpforwardError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.request import Request
from stages.stage4_backends import decoder
from stages.stage4_backends.base_grammar_backend import BaseGrammarBackend
from stages.stage4_backends.grammar_queue import Invalid, _grant
from tests.conformance.harness import Ask
from tests.museum.bench import in_time
from tests.museum.jumps import ask

QueueClass = Callable[[Callable[[Any], "Future[Any]"], float, Callable[[], float]], Any]


class Table:
    """A queue of the learner's, with futures that the test ends and a clock that it sets."""

    def __init__(self, part: QueueClass) -> None:
        self.futures: dict[str, list[Future[str]]] = {}
        self.now = 100.0
        self.queue = part(self._submit, 10.0, lambda: self.now)

    def _submit(self, key: str) -> Future[str]:
        self.futures.setdefault(key, []).append(Future())
        return self.futures[key][-1]

    def ends(self, key: str, error: Exception | None = None) -> None:
        """The newest compile of a key is over."""
        if error is None:
            self.futures[key][-1].set_result(key.upper())
        else:
            self.futures[key][-1].set_exception(error)

    def admit(self, rid: str, key: str) -> object:
        """What `admit` says."""
        return _outcome(in_time(lambda: self.queue.admit(rid, key), f"admit({rid!r}, {key!r}) blocks"), "admit")

    def poll(self) -> list[tuple[str, object]]:
        """What `poll` says."""
        return [(plain(rid), _outcome(outcome, "poll"))
                for rid, outcome in in_time(self.queue.poll, "poll blocks: it waits for a compile")]


def _outcome(value: object, said_by: str) -> object:
    """None, an error, or what a compile of the tests gives: a text."""
    expect(value is None or type(value) is str or isinstance(value, BaseException),
           f"{said_by} gives {value!r} ({type(value).__name__}), which no compile gave")
    return value


def all_who_wait_get_the_grammar(part: QueueClass, count: int) -> None:
    """Many ask for one key."""
    table = Table(part)
    for index in range(count):
        got = table.admit(f"r{index}", "a")
        expect(got is None, f"'a' is being compiled, and admit says {got!r}, expected None")
    expect(table.poll() == [], "'a' is being compiled, and poll settles somebody")
    table.ends("a")
    wanted = [(f"r{index}", "A") for index in range(count)]
    got = table.poll()
    expect(got == wanted, f"'a' is ready: poll says {got}, expected {wanted}")
    expect(table.poll() == [], "the second poll settles the same requests again")
    got = table.admit("late", "a")
    expect(got == "A", f"'a' is known, and admit says {got!r}")
    expect(len(table.futures["a"]) == 1, f"'a' was handed in {len(table.futures['a'])} times")


def a_slow_grammar_holds_up_nobody(part: QueueClass) -> None:
    """The second is ready, the first is not."""
    table = Table(part)
    for rid, key in (("r1", "slow"), ("r2", "b"), ("r3", "c")):
        table.admit(rid, key)
    table.ends("c")
    got = table.poll()
    expect(got == [("r3", "C")], f"'slow' and 'b' compile, 'c' is ready, and poll does not say so: it says {got}")
    table.ends("slow")
    table.ends("b")
    got = table.poll()
    expect(got == [("r1", "SLOW"), ("r2", "B")], f"'slow' and 'b' are ready: poll says {got}")


def a_failure_is_an_outcome(part: QueueClass) -> None:
    """It ends who waits, and is remembered."""
    table, error = Table(part), ValueError("missing )")
    table.admit("r1", "bad")
    table.admit("r2", "bad")
    table.ends("bad", error)
    got = table.poll()
    expect(got == [("r1", error), ("r2", error)], f"'bad' has failed, and poll does not say so: it says {got}")
    again = table.admit("r3", "bad")
    handed = len(table.futures["bad"])
    expect(handed == 1, f"'bad' has failed before, and was handed in {handed} times")
    expect(again is error, f"'bad' has failed before, and admit says {again!r}, expected the error")
    expect(table.poll() == [], "'bad' has failed before, and poll settles somebody a second time")


def a_compile_has_a_time_limit(part: QueueClass) -> None:
    """Of its own, from when it was handed in."""
    table = Table(part)
    table.admit("r1", "a")
    table.now += 6
    table.admit("r2", "b")
    table.admit("r3", "a")
    table.now += 3.9
    expect(table.poll() == [], "9.9 s have gone by, the time limit is 10 s, and poll settles somebody")
    table.now += 0.2
    got = table.poll()
    expect([rid for rid, _ in got] == ["r1", "r3"] and all(isinstance(one, GrammarTimeoutError) for _, one in got),
           f"'a' was handed in 10.1 s ago, 'b' 4.1 s, the time limit is 10 s: poll says {got}, expected "
           "GrammarTimeoutError for r1 and r3")
    table.ends("b")
    expect(table.poll() == [("r2", "B")], "'b' is ready in time, and poll does not say so")
    again = table.admit("r4", "a")
    expect(isinstance(again, GrammarTimeoutError), f"'a' ran into the time limit before, and admit says {again!r}")


def who_has_gone_does_not_come_back(part: QueueClass) -> None:
    """One of two, then the other; twice, and somebody unknown."""
    table = Table(part)
    table.admit("r1", "a")
    table.admit("r2", "a")
    for rid in ("r1", "r1", "unknown"):
        table.queue.cancel(rid)
    expect(not table.futures["a"][0].cancelled(), "r2 still waits for 'a', and its compile was given up")
    table.ends("a")
    got = table.poll()
    expect(got == [("r2", "A")], f"r1 was aborted, r2 waits: poll says {got}")
    table.queue.cancel("r2")


def a_compile_that_nobody_waits_for_is_given_up(part: QueueClass) -> None:
    """And whoever asks next has it handed in anew."""
    table = Table(part)
    table.admit("r1", "a")
    table.queue.cancel("r1")
    expect(table.futures["a"][0].cancelled(), "nobody waits for 'a' any more, and its compile was not given up")
    expect(table.poll() == [], "r1 was aborted, and poll settles somebody")
    got = table.admit("r2", "a")
    expect(got is None and len(table.futures["a"]) == 2,
           f"'a' was given up; r2 asks: admit says {got!r}, it was handed in {len(table.futures['a'])} times")
    table.ends("a")
    got = table.poll()
    expect(got == [("r2", "A")], f"'a' is ready: poll says {got}")


def adapted(part: QueueClass) -> type:
    """The learner's queue, as stage 4 uses its own."""

    class Adapted:
        def __init__(self, backend: BaseGrammarBackend, limits: GrammarLimits, ranks: object = None) -> None:
            self._pool = ThreadPoolExecutor(2)
            self._reqs: dict[str, Request] = {}
            self._queue = part(lambda key: self._pool.submit(backend.init_value, key), limits.compile_timeout,
                               time.monotonic)

        def admit(self, req: Request, key: Constraint) -> policy.Admission:
            outcome = self._queue.admit(req.rid, key)
            if outcome is None:
                self._reqs[req.rid] = req
                return policy.COMPILING
            return self._granted(req, outcome)

        def poll(self) -> list[tuple[Request, policy.Admission]]:
            settled = self._queue.poll()
            return [(self._reqs[rid], self._granted(self._reqs.pop(rid), outcome)) for rid, outcome in settled]

        def cancel(self, rid: str) -> None:
            self._queue.cancel(rid)

        def _granted(self, req: Request, outcome: Any) -> policy.Admission:
            return _grant(req, Invalid(outcome) if isinstance(outcome, JumpforwardError) else outcome)

    return Adapted


def stage_4_answers(part: QueueClass, patterns: list[str]) -> None:
    """A bad regex among good ones, and a free request."""
    asks = [*(ask(pattern, max_new_tokens=8) for pattern in patterns), Ask("y")]
    with bench() as made:
        right = made.run(made.engine(4, backend="outlines"), asks)
        with in_place(decoder, "GrammarQueue", adapted(part)):
            got = made.run(made.engine(4, backend="outlines"), asks)
    for ours, theirs, what in zip(right, got, [*patterns, "no regex"], strict=True):
        expect((ours.error is None) == (theirs.error is None),
               f"in stage 4, {what!r}: the request ends with {theirs.error}, expected {ours.error}")
        expect(ours.text == theirs.text, f"in stage 4, {what!r}: the answer is {theirs.text!r}, expected {ours.text!r}")


def picture(part: QueueClass) -> list[Row]:
    """A short story, line by line."""
    table, error, rows = Table(part), ValueError("missing )"), []

    def line(what: str, got: object, wanted: str) -> None:
        rows.append(Row(what, str(got), wanted))

    line("admit r1 'slow'", table.admit("r1", "slow"), "None")
    line("admit r2 'bad'", table.admit("r2", "bad"), "None")
    line("admit r3 'a'", table.admit("r3", "a"), "None")
    table.ends("bad", error)
    table.ends("a")
    line("'bad' failed, 'a' is ready: poll", table.poll(), str([("r2", error), ("r3", "A")]))
    line("admit r4 'bad'", table.admit("r4", "bad"), "missing )")
    table.queue.cancel("r1")
    line("cancel r1; poll", table.poll(), "[]")
    return rows
