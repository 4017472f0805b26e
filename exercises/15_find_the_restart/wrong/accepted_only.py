"""Everything stays but the state."""

from __future__ import annotations

from shared_runtime.request import Request
from stages.stage2_jump_forward.decoder import JumpForwardPolicy, RequestState


class Policy(JumpForwardPolicy):
    """The count is right, the state is not."""

    def retract(self, req: Request) -> None:
        """Output stays, the grammar starts again."""
        if isinstance(req.grammar, RequestState):
            req.grammar.state = 0
            req.grammar.accepted = len(req.output_ids)
