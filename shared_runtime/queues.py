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
        running: prefilled; one token a decode step. chunked: the one request whose prompt is partly fed.
    """

    waiting: WaitingQueue
    compiling: dict[str, Request] = field(default_factory=dict)
    running: list[Request] = field(default_factory=list)
    chunked: Request | None = None

    @property
    def in_memory(self) -> list[Request]:
        """Requests that hold a table row."""
        return self.running if self.chunked is None else [*self.running, self.chunked]

    @property
    def empty(self) -> bool:
        """True when nothing is left to do."""
        return not (self.running or self.compiling or len(self.waiting) or self.chunked)

    def drop(self, req: Request) -> None:
        """Take `req` out of wherever it is; nothing happens when it is nowhere (just arrived, or being prefilled)."""
        if self.chunked is req:
            self.chunked = None
        elif req in self.running:
            self.running.remove(req)
        elif req in self.waiting:
            self.waiting.remove(req)
        else:
            self.compiling.pop(req.rid, None)
