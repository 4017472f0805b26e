"""The state is that of what is kept, and what is not kept was read by somebody."""

from __future__ import annotations

from shared_runtime.request import Request
from stages.stage2_jump_forward.decoder import JumpForwardPolicy, RequestState


class Policy(JumpForwardPolicy):
    """Text and grammar agree, and the user has seen another text."""

    def retract(self, req: Request) -> None:
        """Sampled tokens behind the last jump are forgotten, by both."""
        kept = max((index + 1 for index, origin in enumerate(req.origins) if origin == "jumped"), default=0)
        del req.output_ids[kept:], req.origins[kept:]
        if isinstance(req.grammar, RequestState):
            req.grammar.state = req.grammar.fsm.dfa.walk(0, self._vocabulary.decode(req.output_ids))
            req.grammar.accepted = kept
