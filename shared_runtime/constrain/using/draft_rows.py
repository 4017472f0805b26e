"""Masks along a draft: a row in front of it and one behind each of its tokens, as far as it can be followed.

A draft that the mask in front of it forbids is never sampled, so no row behind it can be reached. Nor can one behind
the end of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from shared_runtime.constrain.using.bitmask import has_bit
from shared_runtime.vocabulary import Vocabulary


class Follower(Protocol):
    """What a grammar has to offer here."""

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """Write one row of a packed mask."""
        ...

    def accept_token(self, token_id: int) -> None:
        """Move over one token."""
        ...

    def rollback(self, k: int) -> None:
        """Take back the last `k` tokens."""
        ...


def fill_along(grammar: Follower, mask: Tensor, row: int, draft: Sequence[int], vocabulary: Vocabulary) -> int:
    """Accept, fill and roll back: the way that works with every grammar, and the oracle for a library's own.

    Args:
        grammar: stands before the draft, and stands there again afterwards.
        mask: [rows, words] packed; rows from `row` on are written. draft: tokens, also ones that no vocabulary has.

    Returns:
        How many rows can be reached, at least 1; the others stay as they were.
    """
    taken = 0
    try:
        grammar.fill_vocab_mask(mask, row)
        for token_id in draft:
            if not _leads_on(mask[row + taken], token_id, vocabulary):
                break
            grammar.accept_token(token_id)
            taken += 1
            grammar.fill_vocab_mask(mask, row + taken)
    finally:
        grammar.rollback(taken)
    return taken + 1


def text_part(draft: Sequence[int], vocabulary: Vocabulary) -> list[int]:
    """The leading tokens of a draft that spell text: what a library may be shown of it."""
    for count, token_id in enumerate(draft):
        if not 0 <= token_id < len(vocabulary) or not vocabulary.token_bytes[token_id]:
            return list(draft[:count])
    return list(draft)


def keep_reached(mask: Tensor, row: int, draft: Sequence[int], vocabulary: Vocabulary) -> int:
    """How many rows can be reached; those behind are set to ones, whatever a library's call has left in them."""
    reached = 1
    for token_id in draft:
        if not _leads_on(mask[row + reached - 1], token_id, vocabulary):
            break
        reached += 1
    mask[row + reached:row + len(draft) + 1] = -1
    return reached


def _leads_on(words: Tensor, token_id: int, vocabulary: Vocabulary) -> bool:
    return token_id not in vocabulary.stop_ids and has_bit(words, token_id)
