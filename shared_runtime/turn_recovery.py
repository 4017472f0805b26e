"""What becomes of a turn that fails or is interrupted: its requests end, the others go on, the books balance."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from shared_runtime.batch_builder import BatchBuilder
from shared_runtime.errors import EngineStateError
from shared_runtime.kv_memory import KVMemory
from shared_runtime.policy import StagePolicy
from shared_runtime.queues import Queues
from shared_runtime.request import FinishReason, Request


def failed_pass(error: BaseException) -> FinishReason:
    """How the requests of a pass end that could not be carried out."""
    failure = EngineStateError(f"the pass failed: {type(error).__name__}: {error}", where="engine")
    return FinishReason("error", error=failure)


class TurnRecovery(ABC):
    """The part of a loop that is only needed when something goes wrong.

    Attributes:
        _arrived: handed in, and not looked at yet. _live: all that were handed in and have not ended, by `id`.
        _at_hand: whom the turn works on, as far as no slot taken for them tells. _polling: the stage is being asked
            for compiled grammars.
    """

    memory: KVMemory
    queues: Queues
    _builder: BatchBuilder
    _policy: StagePolicy
    _arrived: list[Request]
    _live: dict[int, Request]
    _at_hand: list[Request]
    _polling: bool

    @property
    @abstractmethod
    def in_flight(self) -> list[Tensor]:
        """The slots that passes on their way are writing to."""

    @abstractmethod
    def _end(self, req: Request, reason: FinishReason) -> None:
        """The one way out of the loop."""

    def _give_up(self, error: BaseException) -> None:
        """A turn has failed, or was interrupted: its requests end, their memory comes back, the others can go on.

        An interrupt may fall between any two lines, also of what is done here at other times. So nothing is taken on
        trust: the books are proved, and where they do not balance the memory starts afresh.
        """
        reason = failed_pass(error)
        try:
            self._take_back(reason)
            for req in self._lost():
                self._end(req, reason)
            self.memory.check(self.queues.in_memory, self.in_flight)
        except Exception:
            self._start_afresh(reason)
        self._at_hand = []
        if self._polling:
            self._poll_again()

    def _take_back(self, reason: FinishReason) -> None:
        """End the requests that the turn worked on."""
        for row in self._builder.unsettled:
            if row.req.kv_len == row.start:
                self.memory.pool.free(row.slots)
        for req in [*(row.req for row in self._builder.unsettled), *self._at_hand, *self._builder.drop_at_hand()]:
            if id(req) in self._live:
                self._end(req, reason)
        self._builder.unsettled = []

    def _lost(self) -> list[Request]:
        """Live requests that are nowhere: they were on the way from one place to the next."""
        known = [*self._arrived, *self.queues.waiting, *self.queues.compiling.values(), *self.queues.in_memory]
        return [req for key, req in self._live.items() if key not in {id(one) for one in known}]

    def _start_afresh(self, reason: FinishReason) -> None:
        """Nobody knows any more who holds what: those that the turn worked on end, the others are computed again."""
        failed = {id(row.req) for row in self._builder.unsettled if not row.wasted} | {id(req) for req in self._at_hand}
        for req in self._live.values():
            self.memory.forget(req)
        self.memory.start_afresh()
        self._builder.unsettled = []
        for req in self.queues.in_memory:
            if id(req) not in failed:
                self._builder.retract(req)
        for req in [*self._lost(), *(req for key, req in self._live.items() if key in failed)]:
            if id(req) in self._live:
                self._end(req, reason)

    def _poll_again(self) -> None:
        """Asking for compiled grammars was interrupted, and an answer may be lost: ask for the grammars anew."""
        self._polling = False
        for req in list(self.queues.compiling.values()):
            self._policy.cancel(req.rid)
            self._arrived.append(req)
            del self.queues.compiling[req.rid]
