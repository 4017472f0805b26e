"""Apply packed masks to logits on a CPU: ours, beside the Triton kernel that upstream has for CUDA.

Rows of a batch differ: where a grammar waits for a digit ten tokens are open, inside a JSON string all but two hundred.
So the cheap thing is done per row: write the few that are shut, or keep the few that are open, and only else unpack.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[np.int32]
BITS = 32
_FEW = 2_000
"""Touching so many single cells of a row takes as long as unpacking the row's 49,152 bits and filling by them."""


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
    chosen = np.arange(logits.shape[0]) if rows is None else np.asarray(rows, dtype=np.int64)
    if not len(chosen):
        return
    open_words: Words = bitmask.numpy()[chosen, :words_for(width)]
    shut_words = ~open_words
    if width % BITS:
        inside = np.int32((1 << width % BITS) - 1)
        open_words[:, -1] &= inside
        shut_words[:, -1] &= inside
    shut_few = np.bitwise_count(shut_words.view(np.uint32)).sum(axis=1) <= _FEW
    open_few = ~shut_few & (np.bitwise_count(open_words.view(np.uint32)).sum(axis=1) <= _FEW)
    _shut(logits, chosen[shut_few], shut_words[shut_few])
    _keep(logits, chosen[open_few], open_words[open_few])
    for index in np.flatnonzero(~(shut_few | open_few)):
        bits = np.unpackbits(shut_words[index].view(np.uint8), bitorder="little").view(np.bool_)
        logits[int(chosen[index])].masked_fill_(torch.from_numpy(bits)[:width], -torch.inf)


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


def _shut(logits: Tensor, rows: NDArray[np.int64], words: Words) -> None:
    if len(rows):
        index, token_ids = _set_bits(words)
        logits[torch.from_numpy(rows[index]), torch.from_numpy(token_ids)] = -torch.inf


def _keep(logits: Tensor, rows: NDArray[np.int64], words: Words) -> None:
    if len(rows):
        index, token_ids = _set_bits(words)
        cells = torch.from_numpy(rows[index]), torch.from_numpy(token_ids)
        kept = logits[cells]
        logits.index_fill_(0, torch.from_numpy(rows), -torch.inf)
        logits[cells] = kept


def _set_bits(words: Words) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and token id of every bit that is 1, unpacking only the words that hold one."""
    row, word = np.nonzero(words)
    bits = np.unpackbits(words[row, word].view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    index, bit = np.nonzero(bits)
    return row[index], word[index] * BITS + bit
