"""The decoder: embedding, layers of attention and SwiGLU around a residual stream, final norm, head.

One class serves all families; what differs between them is in `ModelConfig`. Tokens lie flat, [T,
hidden_size], whoever they belong to: only attention knows of requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from shared_runtime.attention import LayerAttention
from shared_runtime.execution.rank_group import RankGroup, SingleRank
from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.linear import ExactLinear, FastLinear, Linear, LinearFactory, exact_silu
from shared_runtime.model.rope import RotaryTable, Rotation
from shared_runtime.model.shard import JoinedLinear, SharedEmbedding, SummedLinear


class Embedding(Protocol):
    """Token ids to vectors."""

    def __call__(self, ids: Tensor) -> Tensor:
        """[T] int64 -> [T, hidden_size]."""
        ...


class WholeEmbedding:
    """A look-up in one table [vocab, hidden_size]."""

    def __init__(self, table: Tensor) -> None:
        self._table = table

    def __call__(self, ids: Tensor) -> Tensor:
        """Look up."""
        return F.embedding(ids, self._table)


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


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """Projections, optional norms of queries and keys, rotation; the rest is `LayerAttention`."""

    layer: int
    head_dim: int
    q_proj: Linear
    k_proj: Linear
    v_proj: Linear
    o_proj: Linear
    q_norm: RMSNorm | None
    k_norm: RMSNorm | None
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
class DecoderLayer:
    """Attention and SwiGLU, each behind a norm and added to the residual stream."""

    input_norm: RMSNorm
    attention: SelfAttention
    post_norm: RMSNorm
    mlp: SwiGLU

    def __call__(self, x: Tensor, rotation: Rotation, attention: LayerAttention) -> Tensor:
        """[T, hidden_size] -> [T, hidden_size]."""
        x = x + self.attention(self.input_norm(x), rotation, attention)
        return x + self.mlp(self.post_norm(x))


class Decoder:
    """A language model's weights and what is done with them. Holds no state of any request.

    Attributes:
        config: its shape.
        width: width of the logits: rows of the embedding, `config.vocab_size`.
        dtype: of weights, activations, keys and values. Logits are float32 always.
        device: where the weights are.
        exact: a token's logits depend on its request's tokens alone, to the bit.
    """

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], *, exact: bool,
                 linear: LinearFactory | None = None, group: RankGroup | None = None) -> None:
        """Put the layers together around `weights`, without copying them.

        Args:
            config: the model's shape.
            weights: tensors by Hugging Face name, with the shapes of `weights.expected_shapes(config)`, all
                of one dtype on one device.
            exact: see above.
            linear: makes the linear layers; by default what `exact` asks for.
            group: the ranks that share the model; config and weights are then this rank's share (`shard`).
        """
        self.config = config
        self.exact = exact
        table = weights["model.embed_tokens.weight"]
        self.dtype, self.device = table.dtype, table.device
        self.width = config.vocab_size
        ranks = group or SingleRank()
        parts = _Parts(config, weights, linear or (ExactLinear if exact else FastLinear), exact, ranks)
        self._embedding: Embedding = WholeEmbedding(table) if ranks.size == 1 else SharedEmbedding(table, ranks)
        self._layers = [parts.layer(i) for i in range(config.n_layers)]
        self._norm = parts.norm("model.norm")
        self._head = parts.head("model.embed_tokens" if config.tied else "lm_head")
        self._rotary = RotaryTable(config.rope, head_dim=config.head_dim, dtype=self.dtype,
                                   device=self.device)

    def reserve(self, longest: int) -> None:
        """Have ready what depends on positions, for those below `longest`; it then stays where it is in memory."""
        self._rotary.reserve(longest)

    def forward(self, batch: ForwardBatch, attention: LayerAttention) -> Tensor:
        """One pass.

        Args:
            batch: the tokens.
            attention: `PagedAttention.plan(batch, self.dtype)`.

        Returns:
            [R, width] float32, the logits of the tokens that `batch.logits_index` names, in its order.
        """
        rotation = self._rotary.at(batch.positions, longest=max(batch.seq_lens))
        x = self._embedding(batch.input_ids)
        for layer in self._layers:
            x = layer(x, rotation, attention)
        return self._head(self._norm(x[batch.logits_index])).float()


@dataclass(frozen=True, slots=True)
class _Parts:
    """Makes the layers of a decoder out of named tensors."""

    config: ModelConfig
    weights: Mapping[str, Tensor]
    factory: LinearFactory
    exact: bool
    ranks: RankGroup

    def linear(self, name: str, *, has_bias: bool) -> Linear:
        bias = self.weights[f"{name}.bias"] if has_bias else None
        return self.factory(self.weights[f"{name}.weight"], bias)

    def summed(self, name: str, *, has_bias: bool) -> Linear:
        """A layer back to the residual stream; of several ranks only the first adds the bias."""
        local = self.linear(name, has_bias=has_bias and self.ranks.rank == 0)
        return local if self.ranks.size == 1 else SummedLinear(local, self.ranks)

    def head(self, name: str) -> Linear:
        local = self.linear(name, has_bias=False)
        return local if self.ranks.size == 1 else JoinedLinear(local, self.ranks)

    def norm(self, name: str) -> RMSNorm:
        return RMSNorm(self.weights[f"{name}.weight"], self.config.rms_norm_eps)

    def layer(self, i: int) -> DecoderLayer:
        name = f"model.layers.{i}"
        return DecoderLayer(self.norm(f"{name}.input_layernorm"), self._attention(i, f"{name}.self_attn"),
                            self.norm(f"{name}.post_attention_layernorm"), self._mlp(f"{name}.mlp"))

    def _attention(self, i: int, name: str) -> SelfAttention:
        config = self.config
        return SelfAttention(
            layer=i,
            head_dim=config.head_dim,
            q_proj=self.linear(f"{name}.q_proj", has_bias=config.qkv_bias),
            k_proj=self.linear(f"{name}.k_proj", has_bias=config.qkv_bias),
            v_proj=self.linear(f"{name}.v_proj", has_bias=config.qkv_bias),
            o_proj=self.summed(f"{name}.o_proj", has_bias=config.o_bias),
            q_norm=self.norm(f"{name}.q_norm") if config.qk_norm else None,
            k_norm=self.norm(f"{name}.k_norm") if config.qk_norm else None,
            rotates=i not in config.no_rope_layers,
        )

    def _mlp(self, name: str) -> SwiGLU:
        has_bias = self.config.mlp_bias
        return SwiGLU(self.linear(f"{name}.gate_proj", has_bias=has_bias),
                      self.linear(f"{name}.up_proj", has_bias=has_bias),
                      self.summed(f"{name}.down_proj", has_bias=has_bias), self.exact)
