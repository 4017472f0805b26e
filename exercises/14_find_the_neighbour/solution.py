"""Exercise 14: find the bug in this buffer."""

from __future__ import annotations

import torch
from torch import Tensor


class MaskBuffer:
    """One packed mask for a batch, kept from step to step in host memory."""

    def __init__(self, width: int, device: torch.device) -> None:
        self._words = -(-width // 32)
        self._device = device
        self._host = self._allocate(1)

    def rows(self, count: int) -> Tensor:
        """[count, words] int32 in host memory, all ones, valid until the next call."""
        held = self._host.shape[0]
        if count > held:
            self._host = self._allocate(max(count, 2 * held))
        return self._host[:count].fill_(-1)

    def sent(self) -> None:
        """The mask is on its way; on a CPU there is no way to go."""

    def _allocate(self, rows: int) -> Tensor:
        with torch.inference_mode(False):
            return torch.full((rows, self._words), -1, dtype=torch.int32)
