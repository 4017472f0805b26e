"""Rewrite single bits of a mask row on CUDA, without a copy to the host and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..torch_ops.token_filter_torch_ops import merge_bits

_BLOCK = 256


@triton.jit
def _filter_kernel(row: Any, words: Any, bits: Any, count: Any, ALLOWED: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Set or clear bits in words that no other lane touches: the host has merged the ids of each word."""
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = lane < count
    place = row + tl.load(words + lane, mask=live, other=0)
    change = tl.load(bits + lane, mask=live, other=0)
    before = tl.load(place, mask=live, other=0)
    after = before | change if ALLOWED else before & ~change
    tl.store(place, after, mask=live)


def set_token_filter_triton(bitmask: Tensor, row: int, token_ids: Iterable[int], *, allowed: bool,
                            reset: bool = True) -> None:
    """As `torch_ops.token_filter_torch_ops.set_token_filter`, for a mask on the device."""
    merged = merge_bits(token_ids)
    if merged and max(merged) >= bitmask.shape[1]:
        raise IndexError(f"token id of word {max(merged)} in a mask of {bitmask.shape[1]} words")
    if reset:
        bitmask[row] = 0 if allowed else -1
    if merged:
        words = torch.tensor(list(merged), dtype=torch.int64, device=bitmask.device)
        bits = torch.tensor(list(merged.values()), dtype=torch.int32, device=bitmask.device)
        _filter_kernel[(triton.cdiv(len(merged), _BLOCK),)](bitmask[row], words, bits, len(merged), ALLOWED=allowed,
                                                            BLOCK=_BLOCK)
