"""The grammar stays where the draft has led it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from exercises.answers import answer_of
from shared_runtime.vocabulary import Vocabulary

right = answer_of("11_verify_drafts").Drafts


class Drafts:
    """A right answer with one mistake."""

    @staticmethod
    def masks(grammar: Any, mask: Tensor, row: int, draft: Sequence[int], vocabulary: Vocabulary) -> int:
        """Masks along the draft."""
        count = int(right.masks(grammar, mask, row, draft, vocabulary))
        for token_id in draft[:count - 1]:
            grammar.accept_token(token_id)
        return count

    @staticmethod
    def verdict(sampled: Sequence[int], draft: Sequence[int], stop_ids: frozenset[int]) -> list[int]:
        """What counts."""
        return list(right.verdict(sampled, draft, stop_ids))
