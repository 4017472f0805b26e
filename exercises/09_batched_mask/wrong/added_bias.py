"""Adds 0 where a token is allowed, and -inf where not."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def apply_bitmask(logits: Tensor, bitmask: Tensor, rows: Sequence[int] | None = None) -> None:
    """A bias for each token."""
    chosen = list(range(logits.shape[0]) if rows is None else rows)
    bits = (bitmask[chosen][:, :, None] >> torch.arange(32)) & 1
    shut = bits.flatten(1)[:, :logits.shape[1]] == 0
    bias = torch.zeros(shut.shape, dtype=logits.dtype).masked_fill(shut, -torch.inf)
    biased = logits[chosen] + bias
    logits[chosen] = torch.where(shut, torch.full_like(biased, -torch.inf), biased)
