"""Apply packed masks to logits on CUDA: one kernel for the whole batch (upstream: #4947, 2025-04)."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

_BLOCK_WORDS = 128


@triton.jit
def _apply_kernel(logits: Any, bitmask: Any, rows: Any, width: Any, logits_stride: Any, mask_stride: Any,
                  n_words: Any, BLOCK_WORDS: tl.constexpr) -> None:
    """Program (i, j) writes -inf into its words of row rows[i]. Logits are never read, so none can change."""
    row = tl.load(rows + tl.program_id(0)).to(tl.int64)
    word = tl.program_id(1) * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS)
    packed = tl.load(bitmask + row * mask_stride + word, mask=word < n_words, other=-1)
    token = word[:, None] * 32 + tl.arange(0, 32)[None, :]
    shut = ((packed[:, None] >> tl.arange(0, 32)[None, :]) & 1) == 0
    tl.store(logits + row * logits_stride + token, float("-inf"), mask=shut & (token < width))


def apply_token_bitmask_triton(logits: Tensor, bitmask: Tensor, rows: Tensor) -> None:
    """As `torch_ops.bitmask_torch_ops.apply_token_bitmask`, on tensors of one device.

    Args:
        logits: [n, width] floating, its last dimension contiguous. bitmask: [at least n, words] int32, likewise.
        rows: [r] integers, the rows to touch.

    Raises:
        ValueError: the mask has too few words for the logits, or a last dimension is strided.
    """
    width, n_words = logits.shape[1], bitmask.shape[1]
    if n_words * 32 < width or bitmask.shape[0] < logits.shape[0]:
        raise ValueError(f"a mask of {tuple(bitmask.shape)} for logits of {tuple(logits.shape)}")
    if logits.stride(1) != 1 or bitmask.stride(1) != 1:
        raise ValueError("the last dimension must be contiguous")
    if rows.numel():
        grid = (rows.numel(), triton.cdiv(n_words, _BLOCK_WORDS))
        _apply_kernel[grid](logits, bitmask, rows, width, logits.stride(0), bitmask.stride(0), n_words,
                            BLOCK_WORDS=_BLOCK_WORDS)
