"""Rotary position embedding: which frequencies a checkpoint uses, and turning queries and keys by them.

Su et al., "RoFormer", arXiv 2104.09864, in Hugging Face's layout: dimension i is paired with i + head_dim /
2. Scaled frequencies: linear (position interpolation, arXiv 2306.15595), YaRN (arXiv 2309.00071), and Llama
3.1's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from shared_runtime.model.json_fields import JsonFields

RopeType = Literal["default", "linear", "llama3", "yarn"]
_BLOCK = 4096  # positions computed at a time


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """How the rotary frequencies of a checkpoint are made.

    Attributes:
        rope_type: the scaling.
        theta: base of the geometric series of wavelengths.
        factor: how many times longer the scaled wavelengths are (all but `default`).
        original_max_position: context length before scaling (llama3, yarn).
        low_freq_factor: llama3: wavelengths above original_max_position / low_freq_factor are scaled in full.
        high_freq_factor: llama3: wavelengths below original_max_position / high_freq_factor are left alone.
        beta_fast: yarn: dimensions that turn more often than this over the original context are left alone.
        beta_slow: yarn: dimensions that turn less often than this are scaled in full.
        truncate: yarn: round the two borders outward to whole dimensions.
        attention_factor: yarn: cosine and sine are multiplied by it.
    """

    rope_type: RopeType = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0

    @classmethod
    def from_fields(cls, config: JsonFields, *, default_theta: float, max_position: int) -> RopeConfig:
        """Read it from a config.json of either layout.

        The newer layout has all in `rope_parameters`; the older has `rope_theta` beside `rope_scaling`.

        Raises:
            CheckpointError: a scaling that is not supported, or one that lacks a field.
        """
        scaling = config.inner("rope_parameters" if config.has("rope_parameters") else "rope_scaling")
        name = "rope_type" if scaling.has("rope_type") or not scaling.has("type") else "type"
        rope_type = scaling.text(name, "default")
        theta = scaling.number("rope_theta", config.number("rope_theta", default_theta))
        for fields in (config, scaling):
            if fields.number("partial_rotary_factor", 1.0) != 1.0:
                raise fields.error("partial_rotary_factor", "rotating a part of each head is unsupported")
        original = config if config.has("original_max_position_embeddings") else scaling
        original_max = original.integer("original_max_position_embeddings", max_position)
        if rope_type == "default":
            return cls(theta=theta)
        if rope_type == "linear":
            return cls("linear", theta, scaling.number("factor"))
        if rope_type == "llama3":
            return cls("llama3", theta, scaling.number("factor"), original_max,
                       low_freq_factor=scaling.number("low_freq_factor"),
                       high_freq_factor=scaling.number("high_freq_factor"))
        if rope_type == "yarn":
            factor = scaling.number("factor", max_position / original_max)
            return cls("yarn", theta, factor, original_max, beta_fast=scaling.number("beta_fast", 32.0),
                       beta_slow=scaling.number("beta_slow", 1.0), truncate=scaling.flag("truncate", True),
                       attention_factor=_yarn_attention_factor(scaling, factor))
        raise scaling.error(name, f"rope scaling {rope_type!r} is unsupported",
                            fix=f"supported: {', '.join(get_args(RopeType))}")


def _yarn_attention_factor(scaling: JsonFields, factor: float) -> float:
    if scaling.has("attention_factor"):
        return scaling.number("attention_factor")

    def magnitude(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if scaling.has("mscale") and scaling.has("mscale_all_dim"):
        return magnitude(scaling.number("mscale")) / magnitude(scaling.number("mscale_all_dim"))
    return magnitude(1.0)


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians a position adds in each pair of dimensions: [head_dim / 2] float32 on the CPU."""
    plain = 1.0 / rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    if rope.rope_type == "linear":
        return plain / rope.factor
    if rope.rope_type == "llama3":
        # How often a pair turns over the original context decides how much of it is scaled.
        turns = rope.original_max_position * plain / (2 * math.pi)
        keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
        return _blend(plain, plain / rope.factor, keep.clamp(0, 1))
    if rope.rope_type == "yarn":
        return _blend(plain, plain / rope.factor, 1 - _yarn_ramp(rope, head_dim))
    return plain


def _blend(kept: Tensor, scaled: Tensor, keep: Tensor) -> Tensor:
    return scaled * (1 - keep) + kept * keep


def _yarn_ramp(rope: RopeConfig, head_dim: int) -> Tensor:
    """[head_dim / 2]: 0 where a pair keeps its frequency, 1 where it is scaled in full."""

    def pair_with_turns(turns: float) -> float:
        ratio = rope.original_max_position / (turns * 2 * math.pi)
        return head_dim * math.log(ratio) / (2 * math.log(rope.theta))

    low, high = pair_with_turns(rope.beta_fast), pair_with_turns(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low if high != low else 0.001
    return ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / width).clamp(0, 1)


class Rotation(Protocol):
    """How T tokens are turned."""

    def apply(self, x: Tensor) -> Tensor:
        """Turn `x` [T, heads, head_dim]."""
        ...


class RotaryTable:
    """Cosine and sine of every position that has come up, kept for the next pass.

    It grows by whole blocks of positions, each computed in one call of one shape, so that the value at a
    position does not depend on when it was first asked for (vectorised and scalar cosine differ in the last
    bit).

    Args:
        wide: keep them at full head width, for a rotation of fewer operations that rounds in another order.
    """

    def __init__(self, rope: RopeConfig, *, head_dim: int, dtype: torch.dtype, device: torch.device,
                 wide: bool = False) -> None:
        self._inverse = inverse_frequencies(rope, head_dim).to(device)
        self._scale = rope.attention_factor
        self._wide = wide
        width = head_dim if wide else head_dim // 2
        self._cos = torch.empty((0, width), dtype=dtype, device=device)
        self._sin = torch.empty((0, width), dtype=dtype, device=device)

    def at(self, positions: Tensor, *, longest: int) -> Rotation:
        """The rotation of tokens at `positions`.

        Args:
            positions: [T] int64, all below `longest`.
            longest: an upper bound that the host knows (asking the device would stall it).
        """
        self.reserve(longest)
        cos, sin = self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)
        return WideRotation(cos, sin) if self._wide else HalfRotation(cos, sin)

    def reserve(self, longest: int) -> None:
        """Have every position below `longest`. Growing moves the table to another place in memory."""
        while self._cos.shape[0] < longest:
            self._grow()

    def _grow(self) -> None:
        start = self._cos.shape[0]
        block = torch.arange(start, start + _BLOCK, dtype=torch.float32, device=self._inverse.device)
        angles = block[:, None] * self._inverse
        cos, sin = angles.cos() * self._scale, angles.sin() * self._scale
        if self._wide:
            cos, sin = torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)
        self._cos = torch.cat([self._cos, cos.to(self._cos.dtype)])
        self._sin = torch.cat([self._sin, sin.to(self._sin.dtype)])


@dataclass(frozen=True, slots=True)
class HalfRotation:
    """Cosine and sine of T tokens: [T, 1, head_dim / 2] each."""

    cos: Tensor
    sin: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Turn `x` [T, heads, head_dim]."""
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * self.cos - second * self.sin, second * self.cos + first * self.sin], dim=-1)


@dataclass(frozen=True, slots=True)
class WideRotation:
    """Cosine and sine of T tokens, [T, 1, head_dim] each, the first half of the sines negative.

    Three operations where `HalfRotation` takes nine: for a single token each costs more in calling than in computing.
    """

    cos: Tensor
    sin: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Turn `x` [T, heads, head_dim]."""
        return torch.addcmul(x * self.cos, x.roll(x.shape[-1] // 2, dims=-1), self.sin)
