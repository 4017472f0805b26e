"""Who is told what happens in a turn of the loop; `NullTracer` does nothing and creates nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal, Protocol

from torch import Tensor

from shared_runtime.trace import EventName, GateReason, RewriteRecord, StepRecord

if TYPE_CHECKING:
    from shared_runtime.kv_memory import KVMemory
    from shared_runtime.queues import Queues
    from shared_runtime.request import Request
    from shared_runtime.schedule_batch import ScheduleBatch

Moved = Literal["retracted", "requeued", "ended"]


class Tracer(Protocol):
    """What the scheduler tells of a turn, in the order it happens."""

    @property
    def wants_logits(self) -> bool:
        """True when `masked` needs the raw logits too (the scheduler then keeps a copy)."""
        ...

    def begin(self) -> None:
        """A turn begins."""
        ...

    def next_turn(self) -> AbstractContextManager[None]:
        """What is told inside is of the pass whose results the next turn will process."""
        ...

    def phase(self, name: str) -> None:
        """The step of the loop called `name` has just ended."""
        ...

    def event(self, name: EventName) -> None:
        """A point in the order of events."""
        ...

    def marker(self) -> Callable[[EventName], None]:
        """`event` for the pass that is told of now, to be called later, on any thread."""
        ...

    def gated(self, reason: GateReason | None) -> None:
        """Whether the next pass was launched ahead of this one's results: None, or why not."""
        ...

    def moved(self, req: Request, how: Moved, note: RewriteRecord | None = None) -> None:
        """A request was retracted, taken out of the batch (and what was done to it), or has ended."""
        ...

    def scheduled(self, batch: ScheduleBatch) -> None:
        """The batch of this turn, before its pass."""
        ...

    def masked(self, batch: ScheduleBatch, raw: Tensor | None, logits: Tensor, filled: Sequence[int]) -> None:
        """Sampled logits [rows, width] before and after the mask, and the rows a grammar filled."""
        ...

    def emitted(self, req: Request, token_ids: Sequence[int]) -> None:
        """The tokens that a request got; called when they are in its output."""
        ...

    def verified(self, req: Request, draft: Sequence[int], accepted: int) -> None:
        """A draft was verified: its first `accepted` tokens were taken."""
        ...

    def synced(self) -> None:
        """The ranks have agreed on the sampled ids."""
        ...

    def end(self, queues: Queues, memory: KVMemory) -> StepRecord | None:
        """The turn is over; returns its record, None when there is no trace."""
        ...

    def close(self) -> None:
        """No more turns will come."""
        ...


class NullTracer:
    """No trace: no record object is created."""

    wants_logits = False

    def begin(self) -> None:
        """Do nothing."""

    def phase(self, name: str) -> None:
        """Do nothing."""

    def next_turn(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def event(self, name: EventName) -> None:
        """Do nothing."""

    def marker(self) -> Callable[[EventName], None]:
        """Something that does nothing."""
        return self.event

    def gated(self, reason: GateReason | None) -> None:
        """Do nothing."""

    def moved(self, req: Request, how: Moved, note: RewriteRecord | None = None) -> None:
        """Do nothing."""

    def scheduled(self, batch: ScheduleBatch) -> None:
        """Do nothing."""

    def masked(self, batch: ScheduleBatch, raw: Tensor | None, logits: Tensor, filled: Sequence[int]) -> None:
        """Do nothing."""

    def emitted(self, req: Request, token_ids: Sequence[int]) -> None:
        """Do nothing."""

    def verified(self, req: Request, draft: Sequence[int], accepted: int) -> None:
        """Do nothing."""

    def synced(self) -> None:
        """Do nothing."""

    def end(self, queues: Queues, memory: KVMemory) -> StepRecord | None:
        """Do nothing; there is no record."""
        return None

    def close(self) -> None:
        """Do nothing."""
