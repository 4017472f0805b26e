"""Log-probabilities to report: of the model's own distribution, and of what a constraint left of it.

Rows are worked on one at a time: a prompt has one for every token, and float64 copies of all at once would
take hundreds of megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from shared_runtime.request import TokenLogprobs


def raw_logprobs(raw_logits: Tensor, ids: Sequence[int], top_n: int) -> list[TokenLogprobs]:
    """Log-probabilities under the raw model distribution: before bias, penalties, temperature and mask.

    Args:
        raw_logits: [rows, n] logits of any float type, cut to the tokenizer's vocabulary: padding ids are no
            tokens and have no probability.
        ids: the token that stands at each row.
        top_n: how many alternatives to list, best first, equal ones by id.

    Returns:
        One a row; `masked_logprob` equals `logprob`.

    Raises:
        ValueError: not one id a row.
    """
    return [_of_row(row, row.new_zeros(()), token_id, top_n) for row, token_id in _rows(raw_logits, ids)]


def sampled_logprobs(raw_logits: Tensor, masked_logits: Tensor, ids: Sequence[int],
                     top_n: int) -> list[TokenLogprobs]:
    """As `raw_logprobs`, with `masked_logprob` renormalised over the tokens that the mask left.

    Only the support is taken from `masked_logits`, so bias and penalties in them change nothing. The chosen
    id counts as allowed: an extra stop id is admitted after the mask. In a free row both values are equal.

    Args:
        raw_logits: [rows, n], cut to the tokenizer's vocabulary.
        masked_logits: [rows, n or more], -inf where a token was not allowed.
        ids: the chosen token of each row.
        top_n: as `raw_logprobs`.

    Raises:
        ValueError: not one id a row.
    """
    found = []
    for index, (row, token_id) in enumerate(_rows(raw_logits, ids)):
        forbidden = (masked_logits[index, :len(row)] == -math.inf) & (row != -math.inf)
        forbidden[token_id] = False
        # With nothing forbidden the sum is 1 but for rounding; a free row must give one value, not two.
        left = row.masked_fill(forbidden, -math.inf).logsumexp(-1).masked_fill(~forbidden.any(), 0.0)
        found.append(_of_row(row, left, token_id, top_n))
    return found


def _rows(raw_logits: Tensor, ids: Sequence[int]) -> Iterator[tuple[Tensor, int]]:
    """Per row its float64 log-probabilities [n] and its id, one row in memory at a time."""
    if len(raw_logits) != len(ids):
        raise ValueError(f"{len(ids)} ids for {len(raw_logits)} rows of logits")
    for row, token_id in zip(raw_logits, ids, strict=True):
        yield torch.log_softmax(row.double(), -1), token_id


def _of_row(logprobs: Tensor, left: Tensor, token_id: int, top_n: int) -> TokenLogprobs:
    """The report of one row; `left` is the log of the probability that the mask left, a scalar tensor."""
    raw, masked = torch.stack([logprobs[token_id], logprobs[token_id] - left]).tolist()
    return TokenLogprobs(token_id, raw, masked, _best(logprobs, top_n))


def _best(logprobs: Tensor, top_n: int) -> list[tuple[int, float]]:
    """The `top_n` largest of [n], best first; among equals the lower id, which `topk` does not promise."""
    if top_n == 0:
        return []
    lowest = logprobs.topk(min(top_n, len(logprobs))).values[-1]
    candidates = (logprobs >= lowest).nonzero().squeeze(1)
    values = logprobs[candidates]
    order = values.argsort(descending=True, stable=True)[:top_n]
    return list(zip(candidates[order].tolist(), values[order].tolist(), strict=True))
