"""Tokens into a request, and the reasons to end it: step 9 of the loop, for one request."""

from __future__ import annotations

from shared_runtime.policy import AcceptResult
from shared_runtime.request import FinishReason, Request
from shared_runtime.trace import TokenOrigin
from shared_runtime.vocabulary import Vocabulary


class Finisher:
    """Appends a pass's tokens to a request and decides, after each one, whether it ends there.

    The order is part of the contract: stop token, end of the grammar, stop string, length. So a stop token that is
    also the last one allowed counts as `stop`, and nothing behind an end is emitted.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._stop_ids = vocabulary.stop_ids

    def emit(self, req: Request, token_ids: tuple[int, ...], accepted: AcceptResult,
             origin: TokenOrigin = "sampled") -> list[int]:
        """Append what the grammar accepted, up to the token that ends the request.

        Returns:
            The tokens appended.
        """
        emitted: list[int] = []
        for index, token_id in enumerate(token_ids[:accepted.n_accepted]):
            last = index == accepted.n_accepted - 1
            req.output_ids.append(token_id)
            req.origins.append(origin)
            emitted.append(token_id)
            req.finish = self._reason(req, token_id, terminated=accepted.terminated and last)
            if req.finish is not None:
                break
        if req.finish is None and accepted.error is not None:
            req.finish = FinishReason("error", error=accepted.error)
        return emitted

    def _reason(self, req: Request, token_id: int, *, terminated: bool) -> FinishReason | None:
        """Why the request ends with `token_id`, which is its newest token; None when it goes on."""
        params = req.sampling
        if token_id in params.stop_token_ids:
            return FinishReason("stop", matched=token_id)
        if token_id in self._stop_ids and (terminated or not params.ignore_eos):
            return FinishReason("stop", matched=token_id)
        if req.detokenizer is not None:
            req.unsent += req.detokenizer.push(token_id)
            if req.detokenizer.matched_stop is not None:
                return FinishReason("stop", matched=req.detokenizer.matched_stop)
        if terminated:
            return FinishReason("stop")
        if len(req.output_ids) >= params.max_new_tokens:
            return FinishReason("length")
        return None
