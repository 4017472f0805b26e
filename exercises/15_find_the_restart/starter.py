"""Exercise 15: find the bug in this policy. TODO: an answer must go on where it was, also on a busy machine."""

from __future__ import annotations

from shared_runtime import policy
from shared_runtime.request import Request
from stages.stage2_jump_forward.decoder import JumpForwardPolicy, RequestState


class Policy(JumpForwardPolicy):
    """Stage 2's policy, with three methods of our own."""

    def retract(self, req: Request) -> None:
        """Back to the queue: what was written by jumps stays, the rest is decoded again."""
        kept = max((index + 1 for index, origin in enumerate(req.origins) if origin == "jumped"), default=0)
        del req.output_ids[kept:], req.origins[kept:]
        if isinstance(req.grammar, RequestState):
            req.grammar.state = 0
            req.grammar.accepted = kept

    def release(self, req: Request, reason: str) -> None:
        """The request has ended: let go of its grammar."""
        req.grammar = None

    def propose(self, req: Request, room: int) -> policy.Proposal:
        """Every token is sampled."""
        return policy.NO_PROPOSAL
