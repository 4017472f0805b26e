"""The norm by torch's own functions is the root mean square norm, for few numbers (a layer norm) as for many."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shared_runtime.model.layer import FusedRMSNorm, RMSNorm

EPS = 1e-5
SHAPES = [(0, 64), (1, 64), (1, 60), (3, 5, 128), (64, 128), (65, 128), (2, 8192), (300, 64)]
"""On both sides of 8,192 numbers, and at it."""


def rows(shape: tuple[int, ...], dtype: torch.dtype, *, scale: float, offset: float) -> Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    return (drawn * scale + offset).to(dtype)


def oracle(x: Tensor, weight: Tensor) -> Tensor:
    """In float64, from the definition."""
    wide = x.double()
    return wide / (wide.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1e-4, 0.0), (300.0, 0.0), (1.0, 50.0), (0.0, 0.0)],
                         ids=["plain", "near eps", "large", "far from zero", "zeros"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_norm_is_that_of_the_definition(shape: tuple[int, ...], scale: float, offset: float,
                                            dtype: torch.dtype) -> None:
    x = rows(shape, dtype, scale=scale, offset=offset)
    weight = rows(shape[-1:], dtype, scale=1.0, offset=0.0)
    expected = oracle(x, weight)
    found = FusedRMSNorm(weight, EPS)(x)
    assert (found.dtype, found.shape) == (dtype, x.shape)
    once = {torch.float32: 1e-5, torch.bfloat16: 2**-8, torch.float16: 2**-10}[dtype]  # rounded once, at the end
    torch.testing.assert_close(found.double(), expected, rtol=once, atol=1e-6)
    slow = RMSNorm(weight, EPS)(x).double()
    torch.testing.assert_close(slow, expected, rtol=3 * once, atol=1e-6)


def test_a_slice_of_other_numbers_is_normed_like_any() -> None:
    whole = rows((3, 12, 64), torch.float32, scale=1.0, offset=0.0)
    weight = torch.ones(64)
    part = whole[:, 2:5]
    torch.testing.assert_close(FusedRMSNorm(weight, EPS)(part).double(), oracle(part, weight), rtol=1e-5, atol=1e-6)
