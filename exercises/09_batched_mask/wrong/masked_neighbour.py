"""One mask for the batch, which begins as "nothing is allowed"; rows that nobody lists stay so."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def apply_bitmask(logits: Tensor, bitmask: Tensor, rows: Sequence[int] | None = None) -> None:
    """Fills what is listed and applies all of it."""
    allowed = torch.zeros(logits.shape, dtype=torch.bool)
    for row in range(logits.shape[0]) if rows is None else rows:
        bits = (bitmask[row, :, None] >> torch.arange(32)) & 1
        allowed[row] = bits.flatten()[:logits.shape[1]].bool()
    logits.masked_fill_(~allowed, -torch.inf)
