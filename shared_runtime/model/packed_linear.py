"""Linear layers for a CPU that keep a copy of the weight in the order in which the processor wants to read it.

A plain product asks for that order anew in each call, or does without. Packed once, a weight is streamed at the
memory's speed, and up to some sixteen rows cost little more than one.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from shared_runtime.model.linear import Part, joined

_PACKED_FOR = 16
"""Rows for which the library chooses the order. Measured: the best for 1 to 256 rows in bfloat16, for 8 and more in
float32."""

_INT8_ROWS = 4
"""With more rows than this the kernel for 8-bit weights is slower than the packed product."""

_WIDE_ROWS = 64
"""From so many rows on a bfloat16 product is made in float32 where the processor has no tiles for it. Measured: from 48
rows on making the weights float32 anew each time costs no more than it saves."""

_LEVELS = 127


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this torch has oneDNN with its own order of weights, and this processor its arithmetic for `dtype`."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if not all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")):
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def has_fast_float32(dtype: torch.dtype) -> bool:
    """Whether many rows of `dtype` are multiplied faster in float32: bfloat16, on an x86 processor without tiles (AMX).

    Its vectors multiply and add as many numbers of the one kind as of the other at a time, and oneDNN's float32 product
    comes nearer to that. A float32 product of bfloat16 numbers is the same one, added up as exactly.
    """
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return dtype == torch.bfloat16 and x86 and not torch.cpu._is_amx_tile_supported()


class PackedLinear:
    """A product by oneDNN from a packed copy of the weight (float32 or bfloat16, on a CPU that `can_pack`).

    In float32 the plain product of one row is as fast as memory allows, and the packed one is a tenth slower. So the
    plain weights are kept too, which cost no memory while they are mapped from their file, and multiply a lone row. In
    bfloat16 they multiply many rows where that is faster in float32; those of a file in another dtype are a copy of
    their own.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        """Make the copy."""
        weight, self._bias = joined(parts)
        self._lone = list(parts) if weight.dtype == torch.float32 else []
        self._many = [part for part, _ in parts] if has_fast_float32(weight.dtype) else []
        self._width = weight.shape[0]
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACKED_FOR)

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        n_rows = x.shape[0]
        if n_rows == 1 and self._lone:
            found = [F.linear(x, weight, bias) for weight, bias in self._lone]
            return found[0] if len(found) == 1 else torch.cat(found, dim=-1)
        if n_rows >= _WIDE_ROWS and self._many:
            return self._in_float32(x)
        if n_rows == 0:
            return x.new_empty((0, self._width))
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return product

    def _in_float32(self, x: Tensor) -> Tensor:
        """The product, rounded once at the end. Its float32 weights are made for this call alone and not kept."""
        wide = torch.empty((self._width, x.shape[1]))
        start = 0
        for part in self._many:
            wide[start:start + len(part)].copy_(part)  # a third faster than torch.cat
            start += len(part)
        return F.linear(x.float(), wide, None if self._bias is None else self._bias.float()).to(x.dtype)

    def memory(self) -> list[tuple[int, int]]:
        """Address and size in bytes of the copy."""
        return [(torch.ops.mkldnn.data_ptr(self._packed), torch.ops.mkldnn._nbytes(self._packed))]


class Int8Linear:
    """Weights rounded to 8 bits, a scale for each output; activations stay in bfloat16.

    Up to four rows the 8-bit weights are read, half as many bytes as before. More rows are a matter of arithmetic, not
    of bytes: they use a packed copy of the rounded weights.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        """Round the weights; they must be bfloat16, on a CPU that `can_pack`."""
        weight, self._bias = joined(parts)
        wide = weight.float()
        # An output of zeros alone keeps the scale 1.
        scale = wide.abs().amax(dim=1).div_(_LEVELS)
        scale = torch.where(scale > 0, scale, 1.0).to(weight.dtype)
        self._scale = scale
        self._levels = wide.div_(scale.float()[:, None]).round_().clamp_(-_LEVELS, _LEVELS).to(torch.int8)
        self._many = PackedLinear([(self._levels.to(weight.dtype).mul_(scale[:, None]), self._bias)])

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        if not 0 < x.shape[0] <= _INT8_ROWS:
            return self._many(x)
        product = torch._weight_int8pack_mm(x, self._levels, self._scale)
        return product if self._bias is None else product.add_(self._bias)

    def memory(self) -> list[tuple[int, int]]:
        """Address and size in bytes of both copies."""
        return [(self._levels.data_ptr(), self._levels.numel()), *self._many.memory()]
