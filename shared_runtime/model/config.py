"""The shape of a language model, read from a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from shared_runtime.errors import CheckpointError
from shared_runtime.model.json_fields import JsonFields, read_json_object
from shared_runtime.model.rope import RopeConfig

Family = Literal["llama", "qwen2", "qwen3", "mistral", "smollm3"]
_ARCHITECTURES: dict[str, Family] = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "MistralForCausalLM": "mistral",
    "SmolLM3ForCausalLM": "smollm3",
}
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder of the Llama kind: everything that differs between the supported families is a field here.

    Attributes:
        family: where it comes from; only for display and for defaults of absent fields.
        vocab_size: rows of the embedding and width of the logits. May exceed what the tokenizer knows.
        hidden_size: width of the residual stream.
        intermediate_size: width inside the SwiGLU block.
        n_layers: decoder layers.
        n_heads: query heads; a multiple of `n_kv_heads`.
        n_kv_heads: key and value heads, each shared by n_heads / n_kv_heads query heads.
        head_dim: width of one head; even.
        context_length: most tokens a sequence may have. Where the checkpoint has a sliding window it is at
            most that window: within it, windowed and full attention are the same function.
        rms_norm_eps: added to the mean square.
        rope: the rotary frequencies.
        tied: the head is the embedding matrix.
        qkv_bias: the query, key and value projections have a bias.
        o_bias: the attention's output projection has one.
        mlp_bias: the SwiGLU block's three projections have one.
        qk_norm: each head of queries and keys passes an RMSNorm before rotation (Qwen3).
        no_rope_layers: layers that do not rotate queries and keys (SmolLM3).
        dtype: what the checkpoint says it was saved in; None when it says nothing.
    """

    family: Family
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    context_length: int
    rms_norm_eps: float
    rope: RopeConfig
    tied: bool
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    no_rope_layers: frozenset[int] = frozenset()
    dtype: torch.dtype | None = None

    @classmethod
    def from_folder(cls, folder: Path) -> ModelConfig:
        """Read `folder`/config.json.

        Raises:
            CheckpointError: the file or a field is missing, wrong or unsupported; it names both.
        """
        path = folder / "config.json"
        return cls.from_json(read_json_object(path), where=str(path))

    @classmethod
    def from_json(cls, values: Mapping[str, object], *, where: str = "config.json") -> ModelConfig:
        """Read a config in either Hugging Face layout; `where` is its file, for messages.

        Fields that are absent take the family's own defaults.

        Raises:
            CheckpointError: a field is missing, wrong or unsupported.
        """
        fields = JsonFields(values, where)
        family = _family(fields)
        _refuse_unsupported(fields)
        n_layers = fields.integer("num_hidden_layers")
        n_heads = fields.integer("num_attention_heads")
        max_position = fields.integer("max_position_embeddings")
        attention_bias = family == "qwen2" or (family != "mistral" and fields.flag("attention_bias", False))
        return cls(
            family=family,
            vocab_size=fields.integer("vocab_size"),
            hidden_size=fields.integer("hidden_size"),
            intermediate_size=fields.integer("intermediate_size"),
            n_layers=n_layers,
            n_heads=n_heads,
            n_kv_heads=_kv_heads(fields, n_heads),
            head_dim=_head_dim(fields, family, n_heads),
            context_length=min(max_position, _sliding_window(fields, family, n_layers) or max_position),
            rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
            rope=RopeConfig.from_fields(fields, default_theta=2e6 if family == "smollm3" else 1e4,
                                        max_position=max_position),
            tied=fields.flag("tie_word_embeddings", family == "smollm3"),
            qkv_bias=attention_bias,
            o_bias=attention_bias and family != "qwen2",
            mlp_bias=family in ("llama", "smollm3") and fields.flag("mlp_bias", False),
            qk_norm=family == "qwen3",
            no_rope_layers=_no_rope_layers(fields, n_layers) if family == "smollm3" else frozenset(),
            dtype=_dtype(fields),
        )


def _family(fields: JsonFields) -> Family:
    known = f"supported: {', '.join(_ARCHITECTURES)}"
    if not fields.has("architectures"):
        model_type = fields.text("model_type")
        for family in _ARCHITECTURES.values():
            if family == model_type:
                return family
        raise fields.error("model_type", f"model type {model_type!r} is unsupported", fix=known)
    names = fields.items("architectures")
    name = names[0] if len(names) == 1 else names
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        raise fields.error("architectures", f"architecture {name!r} is unsupported", fix=known)
    return _ARCHITECTURES[name]


def _refuse_unsupported(fields: JsonFields) -> None:
    activation = fields.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise fields.error("hidden_act", f"activation {activation!r} is unsupported", fix="supported: silu")
    if fields.has("quantization_config"):
        raise fields.error("quantization_config", "quantised checkpoints are unsupported",
                           fix="use the checkpoint in float32, bfloat16 or float16")


def _kv_heads(fields: JsonFields, n_heads: int) -> int:
    n_kv_heads = fields.integer("num_key_value_heads", n_heads)
    if n_heads % n_kv_heads:
        raise fields.error("num_key_value_heads",
                           f"{n_kv_heads} key-value heads do not divide {n_heads} attention heads")
    return n_kv_heads


def _head_dim(fields: JsonFields, family: Family, n_heads: int) -> int:
    hidden_size = fields.integer("hidden_size")
    if family == "qwen3":
        head_dim = fields.integer("head_dim", 128)
    elif fields.has("head_dim"):
        head_dim = fields.integer("head_dim")
    elif hidden_size % n_heads:
        raise fields.error("hidden_size", f"{hidden_size} is not a multiple of {n_heads} attention heads")
    else:
        head_dim = hidden_size // n_heads
    if head_dim % 2:
        raise fields.error("head_dim", f"rotary embedding needs an even head width, not {head_dim}")
    return head_dim


def _sliding_window(fields: JsonFields, family: Family, n_layers: int) -> int | None:
    """Tokens a windowed layer looks back on, itself included; None when no layer is windowed."""
    if family == "llama":
        return None
    if family == "mistral":
        # Here null means "no window", and an absent field means the family's own 4096.
        if "sliding_window" in fields.values and not fields.has("sliding_window"):
            return None
        return fields.integer("sliding_window", 4096)
    if not fields.flag("use_sliding_window", False):
        return None
    if family in ("qwen2", "qwen3"):
        if fields.has("layer_types"):
            windowed = "sliding_attention" in fields.items("layer_types")
        else:
            windowed = fields.integer("max_window_layers", 28, least=0) < n_layers
        return fields.integer("sliding_window", 4096) if windowed else None
    return fields.integer("sliding_window") if fields.has("sliding_window") else None


def _no_rope_layers(fields: JsonFields, n_layers: int) -> frozenset[int]:
    if not fields.has("no_rope_layers"):
        interval = fields.integer("no_rope_layer_interval", 4)
        return frozenset(layer for layer in range(n_layers) if (layer + 1) % interval == 0)
    flags = fields.items("no_rope_layers")
    if len(flags) < n_layers or any(flag not in (0, 1) for flag in flags):
        raise fields.error("no_rope_layers", f"must hold a 0 or 1 for each of {n_layers} layers: {flags!r}")
    return frozenset(layer for layer in range(n_layers) if flags[layer] == 0)


def _dtype(fields: JsonFields) -> torch.dtype | None:
    name = "dtype" if fields.has("dtype") else "torch_dtype"
    if not fields.has(name):
        return None
    text = fields.text(name)
    if text not in _DTYPES:
        raise fields.error(name, f"data type {text!r} is unsupported", fix=f"supported: {', '.join(_DTYPES)}")
    return _DTYPES[text]


def expect_folder(folder: Path) -> None:
    """Raise CheckpointError unless `folder` is a folder."""
    if not folder.is_dir():
        raise CheckpointError("no such model folder", where=str(folder),
                              fix="give a Hugging Face model folder with config.json and safetensors files")
