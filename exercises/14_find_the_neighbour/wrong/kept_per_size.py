"""One tensor for each number of rows, ones at first."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.museum.rows.row_61_mask_of_an_old_step import keeps_its_rows


class MaskBuffer:
    """The museum's specimen."""

    def __init__(self, width: int, device: torch.device) -> None:
        self._width = width
        self._allocate = keeps_its_rows()

    def rows(self, count: int) -> Tensor:
        """What was there."""
        return self._allocate(self._width, count, torch.device("cpu"))

    def sent(self) -> None:
        """Nothing."""
