"""Where every live request is: each is in exactly one of these places."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared_runtime.request import Request
from shared_runtime.waiting_queue import WaitingQueue


@dataclass(slots=True)
class Queues:
    """Owned by the scheduler.

    Attributes:
        waiting: ready, without memory. compiling: their grammar is not ready yet.
        prefilling: the last of their prompt is in a pass that is not done. chunked: the one request whose prompt is
            partly fed. running: prefilled; one token a decode step.
    """

    waiting: WaitingQueue
    compiling: dict[str, Request] = field(default_factory=dict)
    prefilling: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    chunked: Request | None = None

    @property
    def in_memory(self) -> list[Request]:
        """Requests that hold a table row."""
        return [*self.running, *self.prefilling, *([] if self.chunked is None else [self.chunked])]

    @property
    def empty(self) -> bool:
        """True when nothing is left to do."""
        return not (self.in_memory or self.compiling or len(self.waiting))

    def drop(self, req: Request) -> None:
        """Take `req` out of wherever it is; nothing happens when it is nowhere (it has just arrived)."""
        if self.chunked is req:
            self.chunked = None
        elif req in self.running:
            self.running.remove(req)
        elif req in self.prefilling:
            self.prefilling.remove(req)
        elif req in self.waiting:
            self.waiting.remove(req)
        else:
            self.compiling.pop(req.rid, None)
