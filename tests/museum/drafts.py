"""Drafts without a source, for the rows about verification: a model that says what a test wants, and guesses."""

from __future__ import annotations

from collections.abc import Callable

from shared_runtime.engine import Engine
from shared_runtime.policy import Proposal
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams


def draft_with(engine: Engine, draft: Callable[[Request], tuple[int, ...]]) -> None:
    """Let the engine's stage offer `draft(request)`, as much of it as there is room for."""

    def propose(req: Request, room: int) -> Proposal:
        return Proposal(draft=draft(req)[:room], source="museum")

    engine.parts.policy.propose = propose  # type: ignore[method-assign]  # stands in for a stage that drafts


def saying(*token_ids: int, **params: object) -> SamplingParams:
    """A model that would say these tokens whenever it may."""
    return SamplingParams(logit_bias=dict.fromkeys(token_ids, 1000.0), **params)  # type: ignore[arg-type]  # checked there
