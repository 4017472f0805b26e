"""Packed vocabulary masks in host memory: int32 words of 32 tokens each, the lowest bit first."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def pack_bits(flags: NDArray[np.uint8]) -> Tensor:
    """[n / 32] int32 from n flags, each 0 or 1; n is a multiple of 32."""
    return torch.from_numpy(np.packbits(flags, bitorder="little").view("<i4").astype(np.int32))


def set_bit(words: Tensor, token_id: int, on: bool) -> None:
    """Set or clear a token's bit in one row."""
    bit = 1 << token_id % 32
    bit -= (bit & 1 << 31) << 1  # bit 31 is the sign of an int32
    word = int(words[token_id // 32])
    words[token_id // 32] = word | bit if on else word & ~bit


def has_bit(words: Tensor, token_id: int) -> bool:
    """Whether a token is allowed in one row; False for an id that the row has no bit for."""
    return 0 <= token_id < 32 * words.shape[0] and bool(int(words[token_id // 32]) >> token_id % 32 & 1)
