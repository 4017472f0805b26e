"""Threads that compile. A library's compile cannot be stopped, so a thread may be lost to it, but never all of them.

Ours in place of upstream's `ThreadPoolExecutor`, whose threads are joined at exit: one stuck compile kept the process
from ending.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shared_runtime.constrain.compiling.failures import own_error
from shared_runtime.errors import ConstraintError, GrammarTimeoutError, JumpforwardError

T = TypeVar("T")


@dataclass(eq=False)
class CompileJob(Generic[T]):
    """One compile.

    Attributes:
        build: what to run. key: what it compiles. future: its result.
        queued: when it was handed in, on the monotonic clock. started: when a thread took it up, None while it waits.
    """

    build: Callable[[], T]
    key: Hashable = None
    future: Future[T] = field(default_factory=Future)
    queued: float = field(default_factory=time.monotonic)
    started: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it is over without a result."""
        return self.future.done() and (self.future.cancelled() or self.future.exception() is not None)


class CompilePool(Generic[T]):
    """Runs jobs in the order they come, `workers` at a time. Threads end when there is nothing to do.

    A compile that was given up goes on, and its key never gets a second thread: whoever wants the same again takes up
    that one, or what came of it. So asking for a hostile grammar over and over costs one thread and not all.

    Args:
        workers: jobs that run side by side.
        max_stuck: how many abandoned jobs may go on running beside them; each holds a thread for as long as its
            library likes. At the limit no thread takes their place, and new jobs wait.
    """

    def __init__(self, workers: int, max_stuck: int = 4) -> None:
        self._workers = workers
        self._max_stuck = max_stuck
        self._lock = threading.Lock()
        self._jobs: deque[CompileJob[T]] = deque()
        self._running: set[CompileJob[T]] = set()
        self._stuck: set[CompileJob[T]] = set()
        self._left: OrderedDict[Hashable, CompileJob[T]] = OrderedDict()  # given up after they started, by key

    @property
    def stuck(self) -> int:
        """Abandoned jobs that still run."""
        return len(self._stuck)

    @property
    def exhausted(self) -> bool:
        """True when every thread is lost to a stuck job: nothing starts until one of those ends."""
        with self._lock:
            return self._capacity() <= 0

    def submit(self, build: Callable[[], T], key: Hashable = None) -> CompileJob[T]:
        """Hand in a job, or take up the one that was given up with the same `key` (None: there is no such)."""
        with self._lock:
            job = None if key is None else self._left.pop(key, None)
            if job is None:
                job = CompileJob(build, key)
                self._jobs.append(job)
                self._start_threads()
        return job

    def outcome(self, job: CompileJob[T], kind: type[T], limit: float, now: float) -> T | JumpforwardError | None:
        """What has become of a job: its result, why there is none, or None while it goes on.

        The time limit counts from when a thread took it up. A job that waits for a thread has none, unless every
        thread is lost to a compile that was given up. A job that is out of time is given up here.

        Args:
            kind: what a compile has to return; anything else is a failure. limit: seconds.
            now: on the monotonic clock.
        """
        if job.future.done():
            try:
                result = job.future.result()
            except BaseException as error:  # whatever the compile raised, on its own thread
                return own_error(error)
            return result if isinstance(result, kind) else ConstraintError(
                f"the backend has compiled it to {result!r}, which is no {kind.__name__}", where="constraint")
        started = job.started
        if now - (job.queued if started is None else started) <= limit or (started is None and not self.exhausted):
            return None
        self.abandon(job)
        if started is None:
            return GrammarTimeoutError(f"{self.stuck} compiles that were given up still hold every thread",
                                       where="constraint", fix="try again later, or start the engine anew"
                                       ).blamed("machine")
        return GrammarTimeoutError(f"compiling took longer than {limit:g} s", where="constraint",
                                   fix="simplify it, raise compile_timeout, or ask again later: it still runs"
                                   ).blamed("machine")

    def abandon(self, job: CompileJob[T]) -> None:
        """Nobody waits for this job any more: it does not start, or it goes on with nobody listening."""
        with self._lock:
            if job in self._jobs:
                self._jobs.remove(job)
                job.future.cancel()
            elif not job.failed:  # a failure has been told, and is not told again
                if job in self._running:
                    self._running.remove(job)
                    self._stuck.add(job)
                    self._start_threads()
                if job.key is not None:
                    self._left[job.key] = job
                    self._drop_results()

    def forget(self) -> None:
        """Keep no result that nobody waits for."""
        with self._lock:
            self._left.clear()

    def _drop_results(self) -> None:
        """Of those given up, the results are memory: a few are kept. The others hold a thread each, so they are few."""
        done = [key for key, job in self._left.items() if job.future.done()]
        for key in done[:max(0, len(done) - self._max_stuck)]:
            del self._left[key]

    def _capacity(self) -> int:
        """Threads there may be for jobs that somebody waits for."""
        return self._workers - max(0, len(self._stuck) - self._max_stuck)

    def _start_threads(self) -> None:
        while self._jobs and len(self._running) < self._capacity():
            job = self._jobs.popleft()
            job.started = time.monotonic()
            job.future.set_running_or_notify_cancel()
            self._running.add(job)
            try:
                threading.Thread(target=self._work, args=(job,), name="compile", daemon=True).start()
            except (RuntimeError, MemoryError) as error:  # the machine has none left
                self._running.discard(job)
                job.future.set_exception(ConstraintError(
                    f"no thread to compile on: {error}", where="constraint", fix="try again later").blamed("machine"))

    def _work(self, job: CompileJob[T]) -> None:
        try:
            result = job.build()
        except BaseException as error:  # also a panic of a Rust library, which is no Exception; the waiter gets it
            job.future.set_exception(error)
        else:
            job.future.set_result(result)
        with self._lock:
            self._running.discard(job)
            self._stuck.discard(job)
            self._start_threads()
