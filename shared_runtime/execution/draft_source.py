"""Where drafts come from, and how long they may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shared_runtime.request import Request


class DraftSource(Protocol):
    """Guesses the next tokens of a request. A wrong guess costs time and never a token."""

    @property
    def name(self) -> str:
        """For the trace."""
        ...

    def draft(self, req: Request, room: int) -> tuple[int, ...]:
        """At most `room` tokens that may follow the request's newest; () when there is no guess."""
        ...

    def forget(self, req: Request) -> None:
        """The request has ended. Idempotent."""
        ...


@dataclass(slots=True)
class DraftLength:
    """How long a request's drafts may be, learnt from what verification took of them.

    A draft that is taken whole doubles the length, one that is refused at once halves it: a pass over k drafts costs
    more than one over none, so a source that guesses badly must become cheap. It never falls to nothing for good:
    after `PATIENCE` passes without a draft it may try one token again.

    Attributes:
        limit: most tokens a draft may have now. longest: most it may ever have.
    """

    PATIENCE = 8

    longest: int = 16
    limit: int = 8
    waited: int = 0

    def allowed(self) -> int:
        """Most tokens of the next draft."""
        if self.limit == 0:
            self.waited += 1
            if self.waited >= self.PATIENCE:
                self.limit, self.waited = 1, 0
        return self.limit

    def learn(self, drafted: int, accepted: int) -> None:
        """A draft of `drafted` tokens was verified, and its first `accepted` were taken."""
        if drafted == 0:
            return
        if accepted == drafted:
            self.limit = min(self.longest, max(self.limit, 1) * 2)
        elif accepted == 0:
            self.limit //= 2
        else:
            self.limit = max(1, min(self.limit, accepted + 1))
