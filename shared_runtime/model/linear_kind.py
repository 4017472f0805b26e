"""Which kind of linear layer a decoder is made of: a fixed choice by mode, device and data type, never a measured one.

A choice by measurement would be the fastest one more often, and would let the same request come out differently from
one start to the next.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from shared_runtime.errors import ConfigError
from shared_runtime.model.linear import ExactLinear, FastLinear, LinearFactory
from shared_runtime.model.packed_linear import Int8Linear, PackedLinear, can_pack

WeightsName = Literal["auto", "plain", "packed", "int8"]

_MOST_BYTES = 4 << 30
"""Of weights that `auto` makes a packed copy of: for a larger model memory is likely to be what lacks."""


@dataclass(frozen=True, slots=True)
class LinearKind:
    """How a decoder multiplies.

    Attributes:
        name: "plain", "exact", "packed" or "int8".
        make: makes the layers.
        make_head: makes the last one, which gives the logits.
        joins: matrices that multiply the same input become one. A joined matrix is a copy, so only kinds that copy
            anyway do it.
    """

    name: str
    make: LinearFactory
    make_head: LinearFactory
    joins: bool


PLAIN = LinearKind("plain", FastLinear.of, FastLinear.of, joins=False)
EXACT = LinearKind("exact", ExactLinear.of, ExactLinear.of, joins=False)
PACKED = LinearKind("packed", PackedLinear, PackedLinear, joins=True)
INT8 = LinearKind("int8", Int8Linear, PackedLinear, joins=True)
"""The head stays in bfloat16: its rounding would go into the logits undamped, and gains 2 % of a pass."""


def check_weights(name: WeightsName, *, dtype: torch.dtype, device: torch.device, exact: bool) -> None:
    """Whether a kind can be asked for at all.

    Raises:
        ConfigError: it cannot, on any machine.
    """
    if name in ("auto", "plain"):
        return
    if exact:
        raise ConfigError(f"exact mode multiplies in tiles of its own, not by {name} weights", where="weights",
                          fix="leave one of the two out")
    if device.type != "cpu":
        raise ConfigError(f"{name} weights are for a CPU", where="weights", fix="leave it out")
    if name == "int8" and dtype != torch.bfloat16:
        raise ConfigError("int8 weights multiply bfloat16 activations; in others the kernel is slower than none",
                          where="weights", fix="use --dtype bf16 with it")


def linear_kind(name: WeightsName, weights: Mapping[str, Tensor], *, exact: bool) -> LinearKind:
    """The kind of layers for `weights`, all of one dtype on one device.

    `auto` packs what `can_pack`, up to 4 GiB; what was asked for and cannot be done here becomes plain, with a warning.

    Raises:
        ConfigError: as `check_weights`.
    """
    table = weights["model.embed_tokens.weight"]
    check_weights(name, dtype=table.dtype, device=table.device, exact=exact)
    if exact:
        return EXACT
    if name == "plain" or (name == "auto" and _n_bytes(weights) > _MOST_BYTES):
        return PLAIN
    if not can_pack(table.dtype, table.device):
        say = logging.getLogger(__name__)
        if name == "auto":
            say.debug("no packed weights on %s in %s; plain ones", table.device, table.dtype)
        else:
            say.warning("this torch or processor has no %s weights in %s; plain ones are used", name, table.dtype)
        return PLAIN
    return INT8 if name == "int8" else PACKED


def _n_bytes(weights: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
