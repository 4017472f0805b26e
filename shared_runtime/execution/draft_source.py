"""Where drafts come from, and how long they may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from shared_runtime.request import Request


class DraftSource(Protocol):
    """Guesses the next tokens of a request. A wrong guess costs time and never a token."""

    @property
    def name(self) -> str:
        """For the trace."""
        ...

    def draft(self, req: Request, room: int, ahead: Sequence[int] = ()) -> tuple[int, ...]:
        """At most `room` tokens that may follow the request's newest; () when there is no guess.

        Args:
            req: the request. room: most tokens. ahead: tokens taken to stand behind the newest already.
        """
        ...

    def forget(self, req: Request) -> None:
        """The request has ended. Idempotent."""
        ...


@dataclass(slots=True)
class DraftLength:
    """How long a request's drafts may be, learnt from what verification took of them.

    A drafted token makes its pass a row longer, and one that is taken saves a pass, which is worth `WORTH` rows. So a
    source has credit: refused tokens use it up, and those that are taken earn it back. A source that guesses badly
    becomes cheap, not silent: without credit it may try one token every `PATIENCE` passes.

    Attributes:
        longest: most tokens that a draft may ever have, and most credit; full at first.
        spent: credit used up. waited: passes since the last try of a source without credit.
    """

    WORTH = 8
    PATIENCE = 8

    longest: int = 16
    spent: int = 0
    waited: int = 0

    def allowed(self) -> int:
        """Most tokens of the next draft; to be asked once a pass."""
        if self.spent < self.longest:
            return self.longest - self.spent
        self.waited = (self.waited + 1) % self.PATIENCE
        return int(self.waited == 0)

    def learn(self, drafted: int, accepted: int) -> None:
        """A draft of `drafted` tokens was verified, and its first `accepted` were taken."""
        refused = drafted - accepted
        self.spent = min(self.longest, max(0, self.spent + refused - self.WORTH * accepted))


@dataclass(slots=True)
class _Account:
    """One request's: what its sources have earned, what they last offered in order, and its counters at that time."""

    lengths: dict[str, DraftLength] = field(default_factory=dict)
    offered: list[tuple[DraftLength, int]] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0


class DraftBook:
    """Puts drafts of several sources one behind the other, each as long as it has earned with its request.

    A pass's offer is made by `open`, then `take` once a source. What verification took of it counts for the source
    that guessed it; a guess behind a refused one says nothing about its source.

    Args:
        first: per source, what it may begin with; `DraftLength()` for one that is not named.
    """

    def __init__(self, first: Mapping[str, DraftLength] | None = None) -> None:
        self._first = first or {}
        self._accounts: dict[str, _Account] = {}

    def open(self, req: Request) -> None:
        """Learn what became of the last offer, and begin the next."""
        account = self._accounts.setdefault(req.rid, _Account())
        verified = req.metrics.drafted_tokens - account.drafted
        accepted = req.metrics.accepted_tokens - account.accepted
        for length, offered in account.offered:
            count = min(offered, verified)
            length.learn(count, min(count, accepted))
            verified, accepted = verified - count, accepted - count
            if accepted < 0:
                break
        account.offered = []
        account.drafted, account.accepted = req.metrics.drafted_tokens, req.metrics.accepted_tokens

    def take(self, req: Request, source: str, tokens: Sequence[int], room: int) -> tuple[int, ...]:
        """The part of a source's draft that goes into this pass, at most `room` tokens."""
        account = self._accounts[req.rid]
        length = account.lengths.setdefault(source, replace(self._first.get(source, DraftLength())))
        taken = tuple(tokens[:min(room, length.allowed())]) if tokens and room > 0 else ()
        account.offered.append((length, len(taken)))
        return taken

    def forget(self, req: Request) -> None:
        """The request has ended. Idempotent."""
        self._accounts.pop(req.rid, None)
