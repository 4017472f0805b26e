"""Sampling noise as a pure function of (seed, position, token id).

A generator with hidden state would tie a request's draws to whoever else is in the batch and to how often it
was put back and restarted. Here nothing is stored: the noise is a hash of three numbers, in the manner of the
counter-based generators of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). The hash
is the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), in integer arithmetic that wraps at 64
bits, so its bits are the same on every device. Adding Gumbel noise to logits and taking the argmax draws a
token from their softmax (Gumbel, 1954).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_WORD = 1 << 64
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLY_1 = 0xBF58476D1CE4E5B9
_MULTIPLY_2 = 0x94D049BB133111EB
NOISE_BITS = 52


def stream_key(seed: int, position: int) -> int:
    """The 64-bit key of the noise at one output position of one request.

    Two rounds, so that neighbouring seeds (`n` answers use seed + i) and positions give unrelated keys.

    Args:
        seed: any whole number; taken modulo 2**64.
        position: index of the output token, from 0.
    """
    return mix64(mix64(seed + _GOLDEN) + position * _GOLDEN)


def mix64(value: int) -> int:
    """The finaliser of SplitMix64 on a Python int, modulo 2**64."""
    value %= _WORD
    value = (value ^ (value >> 30)) * _MULTIPLY_1 % _WORD
    value = (value ^ (value >> 27)) * _MULTIPLY_2 % _WORD
    return value ^ (value >> 31)


def noise_bits(seeds: Sequence[int], positions: Sequence[int], width: int, device: torch.device) -> Tensor:
    """`NOISE_BITS` random bits for every token id of every row.

    Args:
        seeds: per row, the request's seed. positions: per row, the index of its output token.
        width: number of token ids.

    Returns:
        [rows, width] int64 in [0, 2**NOISE_BITS).
    """
    keys = [_signed(stream_key(seed, position)) for seed, position in zip(seeds, positions, strict=True)]
    counters = torch.arange(1, width + 1, dtype=torch.int64, device=device).mul_(_signed(_GOLDEN))
    bits = torch.tensor(keys, dtype=torch.int64, device=device)[:, None] + counters
    bits.bitwise_xor_(_shift_right(bits, 30)).mul_(_signed(_MULTIPLY_1))
    bits.bitwise_xor_(_shift_right(bits, 27)).mul_(_signed(_MULTIPLY_2))
    bits.bitwise_xor_(_shift_right(bits, 31))
    return _shift_right(bits, 64 - NOISE_BITS)


def uniform_noise(seeds: Sequence[int], positions: Sequence[int], width: int, device: torch.device) -> Tensor:
    """[rows, width] float64, uniform in (0, 1). Arguments as `noise_bits`."""
    return unit_interval(noise_bits(seeds, positions, width, device))


def unit_interval(bits: Tensor) -> Tensor:
    """int64 in [0, 2**NOISE_BITS) -> float64 in (0, 1): the middle of each step, so neither end occurs."""
    return bits.double().add_(0.5).mul_(2.0**-NOISE_BITS)


def gumbel_noise(seeds: Sequence[int], positions: Sequence[int], width: int, device: torch.device) -> Tensor:
    """[rows, width] float64 of the standard Gumbel distribution, all finite. Arguments as `noise_bits`.

    The bits below are equal on every device; the two logarithms may differ by a unit in the last place.
    """
    return uniform_noise(seeds, positions, width, device).log_().neg_().log_().neg_()


def _signed(value: int) -> int:
    """The int64 with the bits of a 64-bit word."""
    return value - _WORD if value >= _WORD // 2 else value


def _shift_right(values: Tensor, count: int) -> Tensor:
    """Shift that fills with zeros; `>>` on int64 would copy the sign."""
    return (values >> count).bitwise_and_((1 << (64 - count)) - 1)
