"""A mask that is there before its logits: what a loop needs of a stage to fill it while the pass is computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from shared_runtime.schedule_batch import ScheduleBatch


def _leave(logits: Tensor) -> None:
    """No row has a grammar."""


@dataclass(frozen=True, slots=True)
class FilledMask:
    """The mask of one pass, complete.

    Attributes:
        rows: the sampled rows that a grammar filled.
        apply: writes -inf, in place, where a token is not allowed, given [rows, width] float32 logits. Called once at
            most, maybe on another thread; by then the grammars may have gone.
    """

    rows: list[int]
    apply: Callable[[Tensor], None] = _leave


class FillsAhead(ABC):
    """A policy whose step 6 comes in two: fill, for which it needs no logits, and apply.

    A stage with overlap must be one.
    """

    @abstractmethod
    def fill_mask(self, batch: ScheduleBatch, positions: Sequence[int]) -> FilledMask:
        """6a. The mask for `batch.sampled`; arguments, duties and failures as those of `StagePolicy.constrain`.

        All grammars have accepted all tokens of their output, so the mask is that of the very next one.
        """

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """6. Fill, then apply."""
        mask = self.fill_mask(batch, positions)
        mask.apply(logits)
        return mask.rows
