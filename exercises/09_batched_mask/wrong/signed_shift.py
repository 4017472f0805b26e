"""Takes a word for a number: one with the sign bit set is below zero."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def apply_bitmask(logits: Tensor, bitmask: Tensor, rows: Sequence[int] | None = None) -> None:
    """A bit is set if the word, without the bits above it, is large enough."""
    chosen = list(range(logits.shape[0]) if rows is None else rows)
    words = bitmask[chosen].to(torch.int64)
    bits = torch.stack([torch.where(words < 0, words & 0x7FFFFFFF, words) >> bit & 1 for bit in range(32)], dim=2)
    logits[chosen] = logits[chosen].masked_fill(bits.flatten(1)[:, :logits.shape[1]] == 0, -torch.inf)
