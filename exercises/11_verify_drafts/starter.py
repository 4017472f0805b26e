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
        """Fill a row in front of the draft and one behind each of its tokens; how many can be reached.

        Args:
            grammar: stands before the draft, and stands there again afterwards.
            mask: [rows, words] int32, packed, the lowest bit first; 1 = allowed.
        """
        raise NotImplementedError("TODO: both methods. Here: fill, look, accept, and at last roll back")

    @staticmethod
    def verdict(sampled: Sequence[int], draft: Sequence[int], stop_ids: frozenset[int]) -> list[int]:
        """The tokens that count: the leading ones that were guessed, and the one behind them."""
        raise NotImplementedError("this one is yours, too")
