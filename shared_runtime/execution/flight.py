"""A pass on its way: launched, and not yet booked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch

from shared_runtime.execution.side_stream import SideStream
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.token_chooser import Preparation
from shared_runtime.verification import Run

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Pending(Protocol[T_co]):
    """Something that is being computed."""

    def done(self) -> bool:
        """Whether `result` would not wait."""
        ...

    def result(self) -> T_co:
        """Wait for it. Raises what the computation raised; an interrupted wait may be taken up again."""
        ...

    def exception(self) -> BaseException | None:
        """Wait for it; what the computation raised, None when it came to its end."""
        ...


class Passes(Protocol):
    """Starts passes, one after the other, and returns before they are done."""

    def start(self, compute: Callable[[], T]) -> Pending[T]:
        """Compute something behind everything started before."""
        ...

    def close(self) -> None:
        """Wait for what is on its way; nothing can be started any more."""
        ...


class ThreadPasses:
    """On a thread of its own: torch lets go of the interpreter while it multiplies.

    Args:
        threads: torch threads of a pass; None leaves them alone.
    """

    def __init__(self, threads: int | None) -> None:
        # A setting of torch that a new thread has to be told; grad and inference mode are a thread's own too.
        setting = (lambda: None) if threads is None else (lambda: torch.set_num_threads(threads))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forward", initializer=setting)

    def start(self, compute: Callable[[], T]) -> Future[T]:
        """Hand it to the thread."""
        return self._thread.submit(_in_inference_mode, compute)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True)


class StreamPasses:
    """On a CUDA stream of their own: a call returns when its kernels are in line, not when they have run."""

    def __init__(self, device: torch.device) -> None:
        self._stream = SideStream(device)

    def start(self, compute: Callable[[], T]) -> Pending[T]:
        """Put its kernels in line."""
        with self._stream.behind(self._stream.mark()):
            return _InLine(_in_inference_mode(compute), self._stream)

    def close(self) -> None:
        """Nothing waits on this side."""
        self._stream.join()


@dataclass(frozen=True, slots=True)
class _InLine(Generic[T]):
    """What comes out of kernels that have been launched."""

    value: T
    stream: SideStream

    def done(self) -> bool:
        """Whoever uses the value on another stream is put behind it; nobody has to wait."""
        return True

    def result(self) -> T:
        """The value, behind the kernels that write it."""
        self.stream.join()
        return self.value

    def exception(self) -> None:
        """None: what goes wrong in a launch is raised there."""


def _in_inference_mode(compute: Callable[[], T]) -> T:
    with torch.inference_mode():
        return compute()


@dataclass(slots=True, eq=False)
class Flight(Generic[T]):
    """A pass on its way.

    Attributes:
        batch: whose pass it is. computed: what comes of it.
        preparation: how its tokens will be chosen; None before it is known, and when nothing is sampled.
    """

    batch: ScheduleBatch
    computed: Pending[T]
    preparation: Preparation | None = None

    @property
    def wasted(self) -> bool:
        """Whether nobody waits for it any more."""
        return all(row.wasted for row in self.batch.rows)

    def live(self, runs: Sequence[Run]) -> list[Run]:
        """The runs that count: not those of requests that have left memory since the mask was filled."""
        gone = [row.req for row in self.batch.rows if row.wasted]
        return [run for run in runs if run.req not in gone]
