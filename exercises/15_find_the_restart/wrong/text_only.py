"""Text that no jump wrote is thrown away; the grammar is not told."""

from __future__ import annotations

from shared_runtime.request import Request
from stages.stage2_jump_forward.decoder import JumpForwardPolicy


class Policy(JumpForwardPolicy):
    """Half of a retraction."""

    def retract(self, req: Request) -> None:
        """The ids alone."""
        kept = max((index + 1 for index, origin in enumerate(req.origins) if origin == "jumped"), default=0)
        del req.output_ids[kept:], req.origins[kept:]
