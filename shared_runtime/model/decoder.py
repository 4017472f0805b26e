"""The decoder: embedding, layers, final norm, head.

One class serves all families; what differs between them is in `ModelConfig`. Tokens lie flat, [T,
hidden_size], whoever they belong to: only attention knows of requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from shared_runtime.attention import LayerAttention
from shared_runtime.execution.rank_group import RankGroup, SingleRank
from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.huge_pages import into_huge_pages
from shared_runtime.model.layer import (
    MLP,
    AttentionPart,
    DecoderLayer,
    FusedRMSNorm,
    JoinedSelfAttention,
    JoinedSwiGLU,
    Norm,
    RMSNorm,
    SelfAttention,
    SwiGLU,
)
from shared_runtime.model.linear import Linear, Part
from shared_runtime.model.linear_kind import EXACT, PLAIN, LinearKind
from shared_runtime.model.packed_linear import Int8Linear, PackedLinear
from shared_runtime.model.rope import RotaryTable
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


class Decoder:
    """A language model's weights and what is done with them. Holds no state of any request.

    Attributes:
        config: its shape.
        width: width of the logits: rows of the embedding, `config.vocab_size`.
        dtype: of weights, activations, keys and values. Logits are float32 always.
        device: where the weights are.
        exact: a token's logits depend on its request's tokens alone, to the bit.
        kind: how it multiplies.
    """

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], *, exact: bool,
                 kind: LinearKind | None = None, group: RankGroup | None = None) -> None:
        """Put the layers together around `weights`, without copying them unless `kind` does.

        Args:
            config: the model's shape.
            weights: tensors by Hugging Face name, with the shapes of `weights.expected_shapes(config)`, all
                of one dtype on one device.
            exact: see above.
            kind: of the linear layers; by default what `exact` asks for.
            group: the ranks that share the model; config and weights are then this rank's share (`shard`).
        """
        self.config = config
        self.exact = exact
        table = weights["model.embed_tokens.weight"]
        self.dtype, self.device = table.dtype, table.device
        self.width = config.vocab_size
        ranks = group or SingleRank()
        self.kind = kind or (EXACT if exact else PLAIN)
        fused = not exact and self.device.type == "cpu"
        parts = _Parts(config, weights, self.kind, exact, fused, ranks)
        self._embedding: Embedding = WholeEmbedding(table) if ranks.size == 1 else SharedEmbedding(table, ranks)
        self._layers = [parts.layer(i) for i in range(config.n_layers)]
        self._norm = parts.norm("model.norm")
        self._head = parts.head("model.embed_tokens" if config.tied else "lm_head")
        self._rotary = RotaryTable(config.rope, head_dim=config.head_dim, dtype=self.dtype,
                                   device=self.device, wide=fused)
        into_huge_pages(stretch for layer in parts.made if isinstance(layer, PackedLinear | Int8Linear)
                        for stretch in layer.memory())

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
    kind: LinearKind
    exact: bool
    fused: bool
    ranks: RankGroup
    made: list[Linear] = field(default_factory=list)

    def linear(self, *names: str, has_bias: bool) -> Linear:
        """One layer, whose output is that of the named ones side by side."""
        self.made.append(self.kind.make([self._part(name, has_bias=has_bias) for name in names]))
        return self.made[-1]

    def summed(self, name: str, *, has_bias: bool) -> Linear:
        """A layer back to the residual stream; of several ranks only the first adds the bias."""
        local = self.linear(name, has_bias=has_bias and self.ranks.rank == 0)
        return local if self.ranks.size == 1 else SummedLinear(local, self.ranks)

    def head(self, name: str) -> Linear:
        local = self.kind.make_head([self._part(name, has_bias=False)])
        self.made.append(local)
        return local if self.ranks.size == 1 else JoinedLinear(local, self.ranks)

    def norm(self, name: str) -> Norm:
        norm = FusedRMSNorm if self.fused else RMSNorm
        return norm(self.weights[f"{name}.weight"], self.config.rms_norm_eps)

    def layer(self, i: int) -> DecoderLayer:
        name = f"model.layers.{i}"
        return DecoderLayer(self.norm(f"{name}.input_layernorm"), self._attention(i, f"{name}.self_attn"),
                            self.norm(f"{name}.post_attention_layernorm"), self._mlp(f"{name}.mlp"))

    def _part(self, name: str, *, has_bias: bool) -> Part:
        return self.weights[f"{name}.weight"], self.weights[f"{name}.bias"] if has_bias else None

    def _attention(self, i: int, name: str) -> AttentionPart:
        config = self.config
        projections = [f"{name}.{one}_proj" for one in "qkv"]
        o_proj = self.summed(f"{name}.o_proj", has_bias=config.o_bias)
        q_norm = self.norm(f"{name}.q_norm") if config.qk_norm else None
        k_norm = self.norm(f"{name}.k_norm") if config.qk_norm else None
        rotates = i not in config.no_rope_layers
        if self.kind.joins:
            return JoinedSelfAttention(i, config.head_dim, config.n_heads, config.n_kv_heads,
                                       self.linear(*projections, has_bias=config.qkv_bias), o_proj, q_norm, k_norm,
                                       rotates)
        q_proj, k_proj, v_proj = (self.linear(one, has_bias=config.qkv_bias) for one in projections)
        return SelfAttention(i, config.head_dim, q_proj, k_proj, v_proj, o_proj, q_norm, k_norm, rotates)

    def _mlp(self, name: str) -> MLP:
        has_bias = self.config.mlp_bias
        inner = [f"{name}.gate_proj", f"{name}.up_proj"]
        down_proj = self.summed(f"{name}.down_proj", has_bias=has_bias)
        if self.kind.joins:
            return JoinedSwiGLU(self.linear(*inner, has_bias=has_bias), down_proj)
        gate_proj, up_proj = (self.linear(one, has_bias=has_bias) for one in inner)
        return SwiGLU(gate_proj, up_proj, down_proj, self.exact)
