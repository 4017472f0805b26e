"""Apply packed masks to logits on a CPU: ours, beside the Triton kernel that upstream has for CUDA.

Rows of a batch differ: where a grammar waits for a digit ten tokens are open, inside a JSON string all but two hundred.
So the cheap thing is done per row, and a row at a time, which stays in the core's cache: write the few that are shut,
or keep the few that are open, or else pass all of it through two bit operations, which cost the same whatever is open
(a select, a token at a time, mispredicts where open and shut alternate: 280 us and not 35 for 49,152 tokens).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[np.int32]
Cells = NDArray[Any]
BITS = 32
_FEW = 1_000
"""So many single cells are touched in the time that the bit operations take for a row."""

_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def words_for(width: int) -> int:
    """How many int32 words hold `width` bits."""
    return -(-width // BITS)


def apply_token_bitmask(logits: Tensor, bitmask: Tensor, rows: Sequence[int] | None = None) -> None:
    """Write -inf, in place, where the bit is 0. What is allowed stays bit-identical, -0.0 and NaN included.

    Args:
        logits: [n, width] of any floating type, on the CPU.
        bitmask: [at least n, words] int32 on the CPU; bit i % 32 of word i // 32 is token i. Bits past the width count
            for nothing.
        rows: which rows to touch; all of them by default.

    Raises:
        ValueError: the mask has too few words for the logits.
    """
    width = _width_of(logits, bitmask)
    # As integers: numpy has no bfloat16, and what is allowed must not pass through any arithmetic.
    cells = logits.view(_INTEGERS[logits.element_size()]).numpy()
    forbidden = torch.tensor(-torch.inf, dtype=logits.dtype).view(_INTEGERS[logits.element_size()]).numpy()[()]
    words = bitmask.numpy()[:, :words_for(width)]
    for row in range(logits.shape[0]) if rows is None else rows:
        _apply(cells[row], words[row], forbidden)


def naive_apply_token_bitmask(logits: Tensor, bitmask: Tensor, rows: Sequence[int] | None = None) -> None:
    """What `apply_token_bitmask` does, a token at a time: the oracle of the tests."""
    for row in range(logits.shape[0]) if rows is None else rows:
        for token_id in range(logits.shape[1]):
            word = int(bitmask[row, token_id // BITS])
            if not word >> token_id % BITS & 1:
                logits[row, token_id] = -torch.inf


def _width_of(logits: Tensor, bitmask: Tensor) -> int:
    width = logits.shape[1]
    if bitmask.dtype != torch.int32 or bitmask.shape[1] < words_for(width) or bitmask.shape[0] < logits.shape[0]:
        raise ValueError(f"a mask of {tuple(bitmask.shape)} {bitmask.dtype} for logits of {tuple(logits.shape)}")
    return width


def _apply(cells: Cells, words: Words, forbidden: Any) -> None:
    n_open = int(np.bitwise_count(words.view(np.uint32)).sum())
    if n_open <= _FEW:
        ids = _set_bits(words, len(cells))
        kept = cells[ids]
        cells.fill(forbidden)
        cells[ids] = kept
    elif words.size * BITS - n_open <= _FEW:
        cells[_set_bits(~words, len(cells))] = forbidden
    else:
        keep = _ones(cells.dtype).take(words.view(np.uint8), axis=0).reshape(-1)[:len(cells)]
        np.bitwise_and(cells, keep, out=cells)
        np.invert(keep, out=keep)
        np.bitwise_and(keep, forbidden, out=keep)
        np.bitwise_or(cells, keep, out=cells)


def _set_bits(words: Words, width: int) -> NDArray[np.int64]:
    """The token ids whose bits are 1."""
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), count=width, bitorder="little").view(np.bool_))


@cache
def _ones(dtype: np.dtype[Any]) -> Cells:
    """[256, 8]: for each byte of a mask, an integer of all ones for each bit that is 1, and 0 for the others."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return -bits.astype(dtype)
