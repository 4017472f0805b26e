"""Ctrl-C between two turns of the loop, where every book balances."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from types import FrameType, TracebackType


@dataclass(slots=True)
class Interrupt:
    """While entered, the first Ctrl-C only sets `requested`; a second one raises KeyboardInterrupt at once.

    Works in the main thread only, as signal handlers do.
    """

    requested: bool = False
    _previous: object = field(default=None, repr=False)

    def __enter__(self) -> Interrupt:
        self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._previous)  # type: ignore[arg-type]  # what signal.signal gave us

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
