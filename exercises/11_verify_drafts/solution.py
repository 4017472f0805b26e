"""Exercise 11: verify drafts and roll back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from shared_runtime.vocabulary import Vocabulary


class Drafts:
    """What a draft needs: masks before the pass, and a verdict after it."""

    @staticmethod
    def masks(grammar: Any, mask: Tensor, row: int, draft: Sequence[int], vocabulary: Vocabulary) -> int:
        """Fill a row in front of the draft and one behind each of its tokens; how many can be reached."""
        taken = 0
        try:
            grammar.fill_vocab_mask(mask, row)
            for token_id in draft:
                inside = 0 <= token_id < 32 * mask.shape[1]
                if not inside or token_id in vocabulary.stop_ids:
                    break
                if not int(mask[row + taken, token_id // 32]) >> token_id % 32 & 1:
                    break
                grammar.accept_token(token_id)
                taken += 1
                grammar.fill_vocab_mask(mask, row + taken)
        finally:
            grammar.rollback(taken)
        return taken + 1

    @staticmethod
    def verdict(sampled: Sequence[int], draft: Sequence[int], stop_ids: frozenset[int]) -> list[int]:
        """The tokens that count: the leading ones that were guessed, and the one behind them."""
        run: list[int] = []
        for index, token_id in enumerate(sampled):
            run.append(token_id)
            if token_id in stop_ids or index >= len(draft) or token_id != draft[index]:
                break
        return run
