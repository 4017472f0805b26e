"""Exercise 15: find the bug in this policy."""

from __future__ import annotations

from shared_runtime import policy
from shared_runtime.request import Request
from stages.stage2_jump_forward.decoder import JumpForwardPolicy


class Policy(JumpForwardPolicy):
    """Stage 2's policy, with three methods of our own."""

    def retract(self, req: Request) -> None:
        """Back to the queue: output and state stay as they are."""

    def release(self, req: Request, reason: str) -> None:
        """The request has ended: let go of its grammar."""
        req.grammar = None

    def propose(self, req: Request, room: int) -> policy.Proposal:
        """Every token is sampled."""
        return policy.NO_PROPOSAL
