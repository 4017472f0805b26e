"""The linear layer, and what makes its result independent of company.

A matrix product adds its terms in an order that the library chooses by the matrix's shape, so the same row
can come out different in the last bits when it stands among other rows. `ExactLinear` gives every row the
same shape: rows are cut into tiles of 16, and each tile is one product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

TILE_ROWS = 16
_REGISTERS = 64  # two registers of 32 half-precision numbers
_SERIAL = 32_768  # torch gives inputs up to this size to one thread


class Linear(Protocol):
    """y = x W^T + b, for x [T, in_features] and y [T, out_features]."""

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        ...


Part = tuple[Tensor, "Tensor | None"]
"""Weight [out_features, in_features] and bias [out_features] or None."""

LinearFactory = Callable[[Sequence[Part]], Linear]
"""Makes one layer whose output is that of each part, side by side: the place where another kind of layer (a packed or
a quantised one) is put in."""


class FastLinear:
    """One product over all rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight
        self.bias = bias

    @classmethod
    def of(cls, parts: Sequence[Part]) -> FastLinear:
        """As a `LinearFactory`; of a single part without copying it."""
        return cls(*joined(parts))

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        return F.linear(x, self.weight, self.bias)


class ExactLinear(FastLinear):
    """One product a tile of 16 rows: a row's result depends on that row alone, to the bit."""

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply, tile by tile."""
        return in_tiles(super().__call__, x)


def joined(parts: Sequence[Part]) -> Part:
    """The parts' weights and biases below each other: the weight and the bias of one layer."""
    if len(parts) == 1:
        return parts[0]
    if all(bias is None for _, bias in parts):
        return torch.cat([weight for weight, _ in parts]), None
    biases = [weight.new_zeros(weight.shape[0]) if bias is None else bias for weight, bias in parts]
    return torch.cat([weight for weight, _ in parts]), torch.cat(biases)


def exact_silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), each element computed in the same way wherever it stands; any shape.

    The vectorised loop leaves what does not fill two registers (at most 64 elements) to scalar code, which rounds
    the exponential differently, and threads cut long inputs into loops of their own: so the input is filled up to
    whole registers, and goes in stretches too short to be shared out.
    """
    flat = x.flatten()
    filled = F.pad(flat, (0, -flat.numel() % _REGISTERS))
    starts = range(0, max(filled.numel(), 1), _SERIAL)
    out = torch.cat([F.silu(filled[start : start + _SERIAL]) for start in starts])
    return out[: flat.numel()].view(x.shape)


def in_tiles(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a row-wise function to tiles of exactly 16 rows, the last one filled up with zeros.

    Args:
        function: [16, n] -> [16, m].
        x: [T, n].

    Returns:
        [T, m].
    """
    n_rows = x.shape[0]
    tiles: list[Tensor] = []
    for start in range(0, n_rows, TILE_ROWS):
        tile = x[start : start + TILE_ROWS]
        missing = TILE_ROWS - tile.shape[0]
        if missing:
            tile = torch.cat([tile, tile.new_zeros((missing, x.shape[1]))])
        tiles.append(function(tile)[: TILE_ROWS - missing])
    if not tiles:
        return function(x.new_zeros((TILE_ROWS, x.shape[1])))[:0]
    return tiles[0] if len(tiles) == 1 else torch.cat(tiles)
