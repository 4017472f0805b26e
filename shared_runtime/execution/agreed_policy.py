"""A stage's policy on several ranks: what one rank's grammar refuses, all refuse.

Grammars on all ranks accept the same tokens, since ids are agreed on. But a grammar can fail for a reason of one
process alone: a mask that took too long there, memory that ran out there. If only that rank ended the request, the next
pass would have other rows on it than on the others, and the ranks would wait for each other for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from shared_runtime.execution.rank_group import AGREE_ON_IDS, RankDivergenceError, RankGroup
from shared_runtime.filled_mask import FilledMask, FillsAhead
from shared_runtime.policy import AcceptResult, Admission, Proposal, Requeue, SampledRow, StagePolicy
from shared_runtime.request import Request
from shared_runtime.schedule_batch import ScheduleBatch


class AgreedPolicy(FillsAhead):
    """`StagePolicy` around another one, the same on every rank; `accept` alone talks.

    What is ready and what has failed to compile the stages agree on themselves, each in the way of its time.
    """

    def __init__(self, local: StagePolicy, ranks: RankGroup) -> None:
        self.local = local
        self._ranks = ranks

    def accept(self, batch: ScheduleBatch, rows: Sequence[SampledRow]) -> list[AcceptResult]:
        """8. The fewest tokens that any rank took, and the lowest rank's error where one has an error.

        Raises:
            RankDivergenceError: the ranks have not sampled for the same requests.
        """
        gathered = self._ranks.from_each(self.local.accept(batch, rows))
        if len({len(results) for results in gathered}) > 1:
            raise RankDivergenceError("the ranks have sampled different tokens, for some requests none", where="ranks",
                                      fix=AGREE_ON_IDS)
        return [agree(results) for results in zip(*gathered, strict=True)]

    def admit(self, req: Request) -> Admission:
        """1. The stage's own."""
        return self.local.admit(req)

    def poll(self) -> list[tuple[Request, Admission]]:
        """2. The stage's own, which is the same on every rank."""
        return self.local.poll()

    def before_decode(self, batch: ScheduleBatch) -> Requeue:
        """3. The stage's own: it follows from the tokens alone."""
        return self.local.before_decode(batch)

    def propose(self, req: Request, room: int) -> Proposal:
        """4. The stage's own: it follows from the tokens alone."""
        return self.local.propose(req, room)

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """6. The stage's own."""
        return self.local.constrain(logits, batch, positions)

    def fill_mask(self, batch: ScheduleBatch, positions: Sequence[int]) -> FilledMask:
        """6a. The stage's own; only stages that have it are asked.

        Raises:
            TypeError: this one has not.
        """
        if not isinstance(self.local, FillsAhead):
            raise TypeError(f"{type(self.local).__name__} fills no mask before the logits are there")
        return self.local.fill_mask(batch, positions)

    def retract(self, req: Request) -> None:
        """The stage's own."""
        self.local.retract(req)

    def release(self, req: Request, reason: str) -> None:
        """The stage's own."""
        self.local.release(req, reason)

    def cancel(self, rid: str) -> None:
        """The stage's own."""
        self.local.cancel(rid)

    def describe(self, req: Request) -> dict[str, object]:
        """The stage's own."""
        return self.local.describe(req)


def agree(results: Sequence[AcceptResult]) -> AcceptResult:
    """What all ranks make of one row, from what each has made of it, in rank order."""
    failed = next((result.error for result in results if result.error is not None), None)
    return AcceptResult(min(result.n_accepted for result in results),
                        terminated=all(result.terminated for result in results), error=failed)
