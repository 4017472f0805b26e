"""Tokens into a request, and the reasons to end it: step 9 of the loop, for one request."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from shared_runtime.detokenizer import IncrementalDetokenizer
from shared_runtime.policy import AcceptResult
from shared_runtime.request import FinishReason, Request
from shared_runtime.trace import TokenOrigin
from shared_runtime.vocabulary import Vocabulary


class Finisher:
    """Appends a pass's tokens to a request and decides, after each one, whether it ends there.

    The order is part of the contract: stop token, stop string, end of the grammar, length. So a stop string that comes
    with the grammar's last token is named in `matched`, and an answer that ends at its limit has not hit it.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._stop_ids = vocabulary.stop_ids

    def emit(self, req: Request, token_ids: Sequence[int], accepted: AcceptResult,
             origins: Sequence[TokenOrigin]) -> list[int]:
        """Append what the grammar accepted, up to the token that ends the request.

        Args:
            req: the request. token_ids, origins: its new tokens, and how each came. accepted: the grammar's word.

        Returns:
            The tokens appended.
        """
        emitted: list[int] = []
        for index, token_id in enumerate(token_ids[:accepted.n_accepted]):
            last = index == accepted.n_accepted - 1
            req.output_ids.append(token_id)
            req.origins.append(origins[index])
            emitted.append(token_id)
            req.finish = self._reason(req, token_id, terminated=accepted.terminated and last)
            if req.finish is not None:
                break
        if req.finish is None and accepted.error is not None:
            req.finish = FinishReason("error", error=accepted.error)
        return emitted

    def surely_ends(self, req: Request, token_ids: Sequence[int]) -> bool:
        """Whether a request ends with these new tokens, whatever its grammar and its text will say.

        Args:
            req: the request, without them. token_ids: () when none could be sampled.
        """
        if not token_ids or self.is_full(req, len(token_ids)):
            return True
        last, params = token_ids[-1], req.sampling
        return last in params.stop_token_ids or (last in self._stop_ids and not params.ignore_eos)

    def is_full(self, req: Request, coming: int = 0) -> bool:
        """Whether the request is at its length limit, with `coming` more tokens."""
        return len(req.output_ids) + coming >= req.sampling.max_new_tokens

    def known(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """The leading ids that are tokens. A draft may come from anywhere, and the model has no row for another id."""
        return tuple(takewhile(lambda token_id: 0 <= token_id < len(self._vocabulary), token_ids))

    def recheck(self, req: Request) -> FinishReason | None:
        """Why a request ends whose output a stage has rewritten; None when it goes on.

        Tokens behind the one that completed a stop string, or past the length limit, are dropped: no more is kept
        than would have been emitted one by one.
        """
        keep = None
        if req.detokenizer is not None and req.detokenizer.matched_stop is not None:
            keep = self._tokens_until_stop(req)
        limit = req.sampling.max_new_tokens
        if keep is not None and keep <= limit:
            self._cut(req, keep)
            return _stopped_by_string(req, completed=False)
        if len(req.output_ids) >= limit:
            self._cut(req, limit)
            return FinishReason("length")
        return None

    def _tokens_until_stop(self, req: Request) -> int:
        search = IncrementalDetokenizer(self._vocabulary, req.sampling.stop)
        for count, token_id in enumerate(req.output_ids, start=1):
            search.push(token_id)
            if search.matched_stop is not None:
                return count
        return len(req.output_ids)

    @staticmethod
    def _cut(req: Request, count: int) -> None:
        del req.output_ids[count:], req.origins[count:], req.logprobs[count:]
        req.metrics.emitted_tokens = len(req.output_ids)
        if req.detokenizer is not None:
            req.detokenizer.rebuild(req.output_ids)

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
                return _stopped_by_string(req, completed=terminated)
        if terminated:
            return FinishReason("stop")
        if self.is_full(req):
            return FinishReason("length")
        return None


def _stopped_by_string(req: Request, *, completed: bool) -> FinishReason:
    """A stop string has come, and been found; `completed` says that the grammar had come to its end by then."""
    if req.has_grammar and not completed:
        req.warnings.append("a stop string ended the answer, which the constraint may not have completed")
    return FinishReason("stop", matched=req.detokenizer.matched_stop if req.detokenizer else None)
