"""From host to device without waiting for what runs there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def to_device(values: Sequence[Any], device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    """A tensor of host numbers, or nested lists of them, on `device`.

    To CUDA from pinned memory: a copy from ordinary memory makes the host wait until the passes before it are done.
    """
    return moved(torch.tensor(values, dtype=dtype), device)


def moved(host: Tensor, device: torch.device) -> Tensor:
    """A host tensor on `device`, in the same way; the tensor itself on a CPU."""
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)  # torch keeps pinned memory until the copy has been made
