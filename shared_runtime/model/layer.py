"""The layers of a decoder: RMSNorm, attention and SwiGLU around a residual stream.

Where weights are copied anyway (`LinearKind.joins`) matrices that read the same input are one, and so are the
rotations of queries and keys: in a one-token pass most operations take longer to call than to compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from shared_runtime.attention import LayerAttention
from shared_runtime.model.linear import Linear, exact_silu
from shared_runtime.model.rope import Rotation

_FEW_NUMBERS = 8192
"""Measured: up to some fourteen rows of 576 the layer norm is the faster one, in bfloat16 more than in float32."""


class Norm(Protocol):
    """A norm over the last dimension."""

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise; the same shape and dtype."""
        ...


class AttentionPart(Protocol):
    """All of attention: projections, rotation, `LayerAttention`, and back to the residual stream."""

    def __call__(self, x: Tensor, rotation: Rotation, attention: LayerAttention) -> Tensor:
        """[T, hidden_size] -> [T, hidden_size]."""
        ...


class MLP(Protocol):
    """The layer's other half."""

    def __call__(self, x: Tensor) -> Tensor:
        """[T, hidden_size] -> [T, hidden_size]."""
        ...


class RMSNorm:
    """Divide by the root of the mean square, then scale; in float32 inside (arXiv 1910.07467)."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._eps)
        return self._weight * wide.to(x.dtype)


class FusedRMSNorm(RMSNorm):
    """The same by torch's own functions: fewer calls, and rounded once at the end.

    For few numbers the calls are what takes time, and `rms_norm` makes ten of them inside. The layer norm of x beside
    -x is one: their mean is zero, so their variance is the mean square of x.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__(weight, eps)
        self._twice = torch.cat([weight, weight])

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        if x.numel() > _FEW_NUMBERS:
            return F.rms_norm(x, self._weight.shape, self._weight, self._eps)
        both = torch.cat([x, x.neg()], dim=-1)
        return F.layer_norm(both, self._twice.shape, self._twice, None, self._eps)[..., :x.shape[-1]]


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """Projections, optional norms of queries and keys, rotation; the rest is `LayerAttention`."""

    layer: int
    head_dim: int
    q_proj: Linear
    k_proj: Linear
    v_proj: Linear
    o_proj: Linear
    q_norm: Norm | None
    k_norm: Norm | None
    rotates: bool

    def __call__(self, x: Tensor, rotation: Rotation, attention: LayerAttention) -> Tensor:
        """[T, hidden_size] -> [T, hidden_size]."""
        n_tokens = x.shape[0]
        q = self.q_proj(x).view(n_tokens, -1, self.head_dim)
        k = self.k_proj(x).view(n_tokens, -1, self.head_dim)
        v = self.v_proj(x).view(n_tokens, -1, self.head_dim)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rotates:
            q, k = rotation.apply(q), rotation.apply(k)
        return self.o_proj(attention.attend(self.layer, q, k, v))


@dataclass(frozen=True, slots=True)
class JoinedSelfAttention:
    """As `SelfAttention`, with one matrix for queries, keys and values, in this order."""

    layer: int
    head_dim: int
    n_heads: int
    n_kv_heads: int
    qkv_proj: Linear
    o_proj: Linear
    q_norm: Norm | None
    k_norm: Norm | None
    rotates: bool

    def __call__(self, x: Tensor, rotation: Rotation, attention: LayerAttention) -> Tensor:
        """[T, hidden_size] -> [T, hidden_size]."""
        heads = self.qkv_proj(x).view(x.shape[0], -1, self.head_dim)
        turned, v = heads[:, :-self.n_kv_heads], heads[:, -self.n_kv_heads:]
        if self.q_norm is not None and self.k_norm is not None:
            turned = torch.cat([self.q_norm(turned[:, :self.n_heads]), self.k_norm(turned[:, self.n_heads:])], dim=1)
        if self.rotates:
            turned = rotation.apply(turned)
        q, k = turned[:, :self.n_heads], turned[:, self.n_heads:]
        return self.o_proj(attention.attend(self.layer, q, k, v))


@dataclass(frozen=True, slots=True)
class SwiGLU:
    """down(silu(gate(x)) * up(x)) (arXiv 2002.05202)."""

    gate_proj: Linear
    up_proj: Linear
    down_proj: Linear
    exact: bool

    def __call__(self, x: Tensor) -> Tensor:
        """[T, hidden_size] -> [T, hidden_size]."""
        gate = self.gate_proj(x)
        return self.down_proj((exact_silu(gate) if self.exact else F.silu(gate)) * self.up_proj(x))


@dataclass(frozen=True, slots=True)
class JoinedSwiGLU:
    """As `SwiGLU`, with one matrix for gate and up, in this order."""

    gate_up_proj: Linear
    down_proj: Linear

    def __call__(self, x: Tensor) -> Tensor:
        """[T, hidden_size] -> [T, hidden_size]."""
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate).mul_(up))


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Attention and SwiGLU, each behind a norm and added to the residual stream."""

    input_norm: Norm
    attention: AttentionPart
    post_norm: Norm
    mlp: MLP

    def __call__(self, x: Tensor, rotation: Rotation, attention: LayerAttention) -> Tensor:
        """[T, hidden_size] -> [T, hidden_size]."""
        x = x + self.attention(self.input_norm(x), rotation, attention)
        return x + self.mlp(self.post_norm(x))
