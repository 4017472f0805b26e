"""The end of the text is a token like any other."""

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
        return int(right.masks(grammar, mask, row, draft, vocabulary))

    @staticmethod
    def verdict(sampled: Sequence[int], draft: Sequence[int], stop_ids: frozenset[int]) -> list[int]:
        """What counts."""
        return list(right.verdict(sampled, draft, frozenset()))
