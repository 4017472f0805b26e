"""Exercise 9: from a mask per request to one bitmask a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def apply_bitmask(logits: Tensor, bitmask: Tensor, rows: Sequence[int] | None = None) -> None:
    """Write -inf, in place, where the bit is 0; leave everything else as it is."""
    chosen = torch.tensor(list(range(logits.shape[0]) if rows is None else rows), dtype=torch.int64)
    shifts = torch.arange(32, dtype=torch.int32)
    bits = (bitmask[chosen][:, :, None] >> shifts) & 1
    shut = bits.flatten(1)[:, :logits.shape[1]] == 0
    logits[chosen] = logits[chosen].masked_fill(shut, -torch.inf)
