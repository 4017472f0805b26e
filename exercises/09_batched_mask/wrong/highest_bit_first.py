"""Reads each word from its highest bit on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def apply_bitmask(logits: Tensor, bitmask: Tensor, rows: Sequence[int] | None = None) -> None:
    """Token 0 is bit 31."""
    chosen = list(range(logits.shape[0]) if rows is None else rows)
    bits = (bitmask[chosen][:, :, None] >> torch.arange(31, -1, -1)) & 1
    logits[chosen] = logits[chosen].masked_fill(bits.flatten(1)[:, :logits.shape[1]] == 0, -torch.inf)
