"""Rows begin as "nothing is allowed"."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.answers import answer_of

Right: type = answer_of("14_find_the_neighbour").MaskBuffer


class MaskBuffer(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def __init__(self, width: int, device: torch.device) -> None:
        super().__init__(width, device)
        self._last = 0
        self._host: Tensor = self._allocate(64)

    def rows(self, count: int) -> Tensor:
        """Rows."""
        return self._host[:count].zero_()
