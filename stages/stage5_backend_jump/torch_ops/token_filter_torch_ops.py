"""Rewrite single bits of a mask row: allow only these tokens, or all but these."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from .bitmask_torch_ops import BITS


def merge_bits(token_ids: Iterable[int]) -> dict[int, int]:
    """Word index -> the bits of the ids that fall into it, as a signed 32-bit value.

    Ids of one word are merged first: written one by one from several threads, the last would win. Bit 31 is the sign.
    """
    merged: dict[int, int] = {}
    for token_id in token_ids:
        if token_id < 0:
            raise ValueError(f"{token_id} is no token id")
        merged[token_id // BITS] = merged.get(token_id // BITS, 0) | 1 << token_id % BITS
    return {word: bits - (1 << BITS) if bits >> BITS - 1 else bits for word, bits in merged.items()}


def set_token_filter(bitmask: Tensor, row: int, token_ids: Iterable[int], *, allowed: bool, reset: bool = True) -> None:
    """Allow or forbid `token_ids` in one row of `bitmask` ([rows, words] int32), in place.

    Args:
        bitmask: the mask. row: which of its rows.
        token_ids: ids inside the mask. allowed: set their bits, or clear them.
        reset: first make the row all zeros (`allowed`) or all ones (not `allowed`).

    Raises:
        ValueError: a negative id. IndexError: an id behind the mask's words.
    """
    merged = merge_bits(token_ids)
    if merged and max(merged) >= bitmask.shape[1]:
        raise IndexError(f"token id of word {max(merged)} in a mask of {bitmask.shape[1]} words")
    words = bitmask.numpy()[row]  # one cell at a time, NumPy is ten times faster than torch
    if reset:
        words.fill(0 if allowed else -1)
    for word, bits in merged.items():
        if allowed:
            words[word] |= bits
        else:
            words[word] &= ~bits
