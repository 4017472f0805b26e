"""A second CUDA stream and the order between it and the caller's; on a CPU, nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

Mark = torch.cuda.Event | None


class SideStream:
    """Where a pass is computed while the caller's own stream does other things.

    What both touch is ordered by events, not by waiting: the pass starts behind what the caller had put on its stream
    when it was launched, and `join` puts what the caller does next behind the pass. So memory that one of them lets go
    is not written by the other before it is done with it. On a CPU a call has done its work when it returns.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no type for it

    def mark(self) -> Mark:
        """The end of what the calling thread has put on its own stream so far."""
        return None if self._stream is None else torch.cuda.current_stream(self._stream.device).record_event()

    @contextmanager
    def behind(self, mark: Mark) -> Iterator[None]:
        """What is done in here is done on the side stream, behind `mark`."""
        if self._stream is None or mark is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(mark)
            yield

    def wait(self, mark: Mark) -> None:
        """Inside `behind`: what follows comes behind `mark` too."""
        if self._stream is not None and mark is not None:
            self._stream.wait_event(mark)

    def join(self) -> None:
        """What the calling thread puts on its own stream from now on comes behind all that is on the side stream."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
