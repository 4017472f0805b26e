"""A rank's share of a model (Shoeybi et al., Megatron-LM, arXiv 1909.08053).

Queries, keys, values and the two inner projections of SwiGLU are cut by output rows: each rank has some heads and some
inner columns. What brings them back to the residual stream is cut by input columns, and its results are summed over
the ranks. The embedding and the head are cut by rows of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from shared_runtime.errors import ConfigError
from shared_runtime.execution.rank_group import RankGroup
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.linear import Linear

_BY_ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_BY_COLUMNS = ("o_proj", "down_proj")


def valid_sizes(config: ModelConfig) -> list[int]:
    """The numbers of ranks that divide heads, key heads, inner width and vocabulary."""
    parts = (config.n_heads, config.n_kv_heads, config.intermediate_size, config.vocab_size)
    return [size for size in range(1, config.n_kv_heads + 1) if all(part % size == 0 for part in parts)]


def local_config(config: ModelConfig, size: int) -> ModelConfig:
    """The shape of one rank's share; `hidden_size` and `vocab_size` stay the whole model's.

    Raises:
        ConfigError: `size` ranks cannot share the model; names the sizes that can.
    """
    if size not in valid_sizes(config):
        raise ConfigError(
            f"{size} ranks cannot share {config.n_heads} heads and {config.n_kv_heads} key heads", where="ranks",
            fix=f"use one of: {', '.join(map(str, valid_sizes(config)))}")
    return replace(config, n_heads=config.n_heads // size, n_kv_heads=config.n_kv_heads // size,
                   intermediate_size=config.intermediate_size // size)


def local_weights(weights: Mapping[str, Tensor], group: RankGroup) -> dict[str, Tensor]:
    """This rank's part of every tensor; a column-cut layer's bias is rank 0's alone, since results are summed."""
    return {name: _part(name, tensor, group) for name, tensor in weights.items()
            if not (_is_bias_of(name, _BY_COLUMNS) and group.rank > 0)}


def _part(name: str, tensor: Tensor, group: RankGroup) -> Tensor:
    layer = name.rsplit(".", 2)[-2]
    if layer in _BY_ROWS or layer in ("embed_tokens", "lm_head"):
        return tensor.chunk(group.size, dim=0)[group.rank].contiguous()
    if layer in _BY_COLUMNS and not name.endswith(".bias"):
        return tensor.chunk(group.size, dim=1)[group.rank].contiguous()
    return tensor


def _is_bias_of(name: str, layers: tuple[str, ...]) -> bool:
    return name.endswith(".bias") and name.rsplit(".", 2)[-2] in layers


class SummedLinear:
    """A linear layer cut by input columns: the ranks' partial results are summed."""

    def __init__(self, local: Linear, group: RankGroup) -> None:
        self._local = local
        self._group = group

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in_features / size] -> [T, out_features], the same on every rank."""
        return self._group.sum(self._local(x))


class JoinedLinear:
    """A linear layer cut by output rows whose whole output is wanted on every rank: the head."""

    def __init__(self, local: Linear, group: RankGroup) -> None:
        self._local = local
        self._group = group

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in_features] -> [T, out_features], the same on every rank."""
        return self._group.join(self._local(x))


class SharedEmbedding:
    """An embedding cut by rows: each rank looks up the ids it has, and the sum is the embedding.

    Args:
        rows: [vocab / size, hidden], this rank's.
    """

    def __init__(self, rows: Tensor, group: RankGroup) -> None:
        self._rows = rows
        self._group = group
        self._first = group.rank * rows.shape[0]

    def __call__(self, ids: Tensor) -> Tensor:
        """[T] int64 -> [T, hidden]."""
        mine = (ids >= self._first) & (ids < self._first + self._rows.shape[0])
        found = F.embedding(torch.where(mine, ids - self._first, 0), self._rows)
        return self._group.sum(found.masked_fill(~mine.unsqueeze(1), 0.0))
