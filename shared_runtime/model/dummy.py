"""Random weights of a given shape (`--load-format dummy`), for speed work and device checks without files."""

from __future__ import annotations

import torch
from torch import Tensor

from shared_runtime.model.config import ModelConfig
from shared_runtime.model.weights import expected_shapes

_SCALE = 0.02  # standard deviation that the supported families are initialised with


def dummy_weights(config: ModelConfig, *, dtype: torch.dtype, device: torch.device,
                  seed: int = 0) -> dict[str, Tensor]:
    """Normal matrices, norms of one, biases of zero; the same for the same config, seed and dtype on any
    device.

    Returns:
        tensors by name, as `weights.load_weights` returns them.
    """
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, Tensor] = {}
    for name, shape in expected_shapes(config).items():
        if name.endswith(".bias"):
            made[name] = torch.zeros(shape, dtype=dtype, device=device)
        elif len(shape) == 1:
            made[name] = torch.ones(shape, dtype=dtype, device=device)
        else:
            made[name] = (torch.randn(shape, generator=generator) * _SCALE).to(device=device, dtype=dtype)
    return made
