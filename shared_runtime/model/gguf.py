"""Turns a GGUF file into a Hugging Face folder: config, tokenizer, fp32 safetensors.

Only architectures and pre-tokenizers that a test holds against `transformers` are read; any key, tensor or
value beyond them is an error that names it, because a conversion that guesses gives a model that talks
plausible nonsense.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shared_runtime.errors import CheckpointError
from shared_runtime.model.gguf_reader import GgufFile
from shared_runtime.model.gguf_tokenizer import GgufTokenizer, read_tokenizer
from shared_runtime.model.safetensors_writer import Float32Array, write_safetensors

Progress = Callable[[str, int, int], None]
"""Called with (phase, bytes done, bytes in all)."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """How one GGUF architecture maps onto a Hugging Face one.

    Attributes:
        model_type, class_name: of `config.json`.
        permuted: the rows of q and k are interleaved by llama.cpp's converter (the halves of each head's
            rotary pairs), which must be undone.
        biases: q, k and v have a bias.
        qk_norm: q and k are normalised per head.
    """

    model_type: str
    class_name: str
    permuted: bool = False
    biases: bool = False
    qk_norm: bool = False


ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", permuted=True),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM", biases=True),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", qk_norm=True),
}

_BLOCK_NAMES = {
    "attn_norm.weight": "input_layernorm.weight", "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight", "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight", "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight", "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_BIAS_NAMES = {f"attn_{x}.bias": f"self_attn.{x}_proj.bias" for x in "qkv"}
_NORM_NAMES = {f"attn_{x}_norm.weight": f"self_attn.{x}_norm.weight" for x in "qk"}
_KNOWN_KEYS = frozenset({
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon",
    "attention.key_length", "attention.value_length", "rope.freq_base", "rope.dimension_count",
})


@dataclass(frozen=True, slots=True)
class GgufModel:
    """The shape of the network in a GGUF file; sizes in elements."""

    arch: Architecture
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    rope_theta: float
    rms_eps: float
    vocab: int
    tied: bool


def convert_gguf(path: Path, out_dir: Path, progress: Progress | None = None) -> None:
    """Write the Hugging Face folder of `path` into the existing folder `out_dir`.

    Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json and model.safetensors
    (fp32). The caller makes it atomic (`cached_folder.build_folder`).

    Raises:
        CheckpointError: `path` is no whole GGUF file, or holds something that is not supported; names the
            field.
        OSError: `out_dir` cannot be written.
    """
    with GgufFile(path) as file:
        model = read_model(file)
        tokenizer = read_tokenizer(file)
        if tokenizer.size > model.vocab:
            raise CheckpointError(f"{tokenizer.size} tokens but token_embd.weight has {model.vocab} rows",
                                  where=str(path))
        names = _tensor_names(file, model)
        for name, text in (("config.json", _config_json(model, tokenizer)),
                           ("generation_config.json", _generation_config_json(tokenizer)),
                           ("tokenizer.json", tokenizer.tokenizer_json),
                           ("tokenizer_config.json", tokenizer.tokenizer_config_json)):
            (out_dir / name).write_text(text, encoding="utf-8")
        shapes = {hf_name: file.tensors[name].shape for name, hf_name in names.items()}
        write_safetensors(out_dir / "model.safetensors", shapes, _tensors(file, model, names),
                          None if progress is None else lambda done, total: progress("convert", done, total))


def converted_bytes(path: Path) -> int:
    """Size of what `convert_gguf` would write, within a few percent; raises as it does for a bad file."""
    with GgufFile(path) as file:
        return sum(4 * tensor.size for tensor in file.tensors.values()) + 16 * 2**20


def read_model(file: GgufFile) -> GgufModel:
    """The network's shape from the keys of `file`.

    Raises:
        CheckpointError: an unsupported architecture, key or value.
    """
    where = str(file.path)
    name = file.string("general.architecture")
    if name not in ARCHITECTURES:
        raise CheckpointError(f"general.architecture = {name!r} is not supported ({', '.join(ARCHITECTURES)})",
                              where=where, fix="use the model's Hugging Face folder instead")
    for key, value in file.metadata.items():
        prefix, _, rest = key.partition(".")
        if prefix == name and rest not in _KNOWN_KEYS:
            raise CheckpointError(f"{key} = {value!r} is not supported", where=where,
                                  fix="use the model's Hugging Face folder instead")
    hidden, heads = file.count(f"{name}.embedding_length"), file.count(f"{name}.attention.head_count")
    kv_heads, key_length = f"{name}.attention.head_count_kv", f"{name}.attention.key_length"
    head_dim = file.count(key_length) if key_length in file.metadata else hidden // heads
    for key in (f"{name}.rope.dimension_count", f"{name}.attention.value_length"):
        if file.optional_integer(key) not in (None, head_dim):
            raise CheckpointError(f"{key} = {file.integer(key)} is not supported (a head has {head_dim})", where=where)
    if "token_embd.weight" not in file.tensors:
        raise CheckpointError("the tensor 'token_embd.weight' is missing", where=where)
    theta = f"{name}.rope.freq_base"
    return GgufModel(
        arch=ARCHITECTURES[name], layers=file.count(f"{name}.block_count"), hidden=hidden,
        intermediate=file.count(f"{name}.feed_forward_length"), heads=heads,
        kv_heads=file.count(kv_heads) if kv_heads in file.metadata else heads, head_dim=head_dim,
        context=file.count(f"{name}.context_length"),
        rope_theta=file.positive(theta) if theta in file.metadata else 10000.0,
        rms_eps=file.positive(f"{name}.attention.layer_norm_rms_epsilon"),
        vocab=file.tensors["token_embd.weight"].shape[0], tied="output.weight" not in file.tensors)


def _tensor_names(file: GgufFile, model: GgufModel) -> dict[str, str]:
    """GGUF name -> Hugging Face name of every tensor, in order: all present, of the right shape, and none left over."""
    q_rows, kv_rows = model.heads * model.head_dim, model.kv_heads * model.head_dim
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {
        "token_embd.weight": ("model.embed_tokens.weight", (model.vocab, model.hidden))}
    block_shapes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (model.hidden,), "ffn_norm.weight": (model.hidden,),
        "attn_q.weight": (q_rows, model.hidden), "attn_k.weight": (kv_rows, model.hidden),
        "attn_v.weight": (kv_rows, model.hidden), "attn_output.weight": (model.hidden, q_rows),
        "ffn_gate.weight": (model.intermediate, model.hidden), "ffn_up.weight": (model.intermediate, model.hidden),
        "ffn_down.weight": (model.hidden, model.intermediate),
        "attn_q.bias": (q_rows,), "attn_k.bias": (kv_rows,), "attn_v.bias": (kv_rows,),
        "attn_q_norm.weight": (model.head_dim,), "attn_k_norm.weight": (model.head_dim,),
    }
    block = dict(_BLOCK_NAMES) | (_BIAS_NAMES if model.arch.biases else {}) | (
        _NORM_NAMES if model.arch.qk_norm else {})
    for layer in range(min(model.layers, len(file.tensors) + 1)):  # a damaged count is at most one block too long
        for name, hf_name in block.items():
            wanted[f"blk.{layer}.{name}"] = (f"model.layers.{layer}.{hf_name}", block_shapes[name])
    wanted["output_norm.weight"] = ("model.norm.weight", (model.hidden,))
    if not model.tied:
        wanted["output.weight"] = ("lm_head.weight", (model.vocab, model.hidden))
    where = str(file.path)
    for name, (_, shape) in wanted.items():
        if name not in file.tensors:
            raise CheckpointError(f"the tensor {name!r} is missing", where=where)
        if file.tensors[name].shape != shape:
            raise CheckpointError(f"tensor {name!r} has shape {list(file.tensors[name].shape)}, "
                                  f"the keys say {list(shape)}", where=where)
    for name in file.tensors:
        if name not in wanted:
            raise CheckpointError(f"the tensor {name!r} is not supported", where=where,
                                  fix="use the model's Hugging Face folder instead")
    return {name: hf_name for name, (hf_name, _) in wanted.items()}


def _tensors(file: GgufFile, model: GgufModel, names: dict[str, str]) -> Iterator[tuple[str, Float32Array]]:
    for name, hf_name in names.items():
        values = file.array(name)
        if model.arch.permuted and name.endswith(("attn_q.weight", "attn_k.weight")):
            values = _unpermute(values, model.heads if name.endswith("attn_q.weight") else model.kv_heads)
        yield hf_name, values


def _unpermute(weight: Float32Array, heads: int) -> Float32Array:
    """Rows (head, pair, half) back to (head, half, pair): rotary halves lie side by side in Hugging Face's layout."""
    rows, cols = weight.shape
    return np.ascontiguousarray(
        weight.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols))


def _config_json(model: GgufModel, tokenizer: GgufTokenizer) -> str:
    # `rope_theta` and `torch_dtype` are the older layout: every reader knows it, an old one would miss the
    # newer.
    config: dict[str, object] = {
        "architectures": [model.arch.class_name], "model_type": model.arch.model_type,
        "vocab_size": model.vocab, "hidden_size": model.hidden, "intermediate_size": model.intermediate,
        "num_hidden_layers": model.layers, "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads, "head_dim": model.head_dim, "hidden_act": "silu",
        "max_position_embeddings": model.context, "rope_theta": _shortest(model.rope_theta),
        "rms_norm_eps": _shortest(model.rms_eps), "tie_word_embeddings": model.tied,
        "attention_bias": model.arch.biases, "bos_token_id": tokenizer.bos_id,
        "eos_token_id": _one_or_many(tokenizer.stop_ids), "pad_token_id": tokenizer.pad_id,
        "torch_dtype": "float32",
    }
    return json.dumps(config, indent=2) + "\n"


def _generation_config_json(tokenizer: GgufTokenizer) -> str:
    return json.dumps({"bos_token_id": tokenizer.bos_id, "eos_token_id": _one_or_many(tokenizer.stop_ids),
                       "pad_token_id": tokenizer.pad_id}, indent=2) + "\n"


def _one_or_many(ids: tuple[int, ...]) -> int | list[int]:
    return ids[0] if len(ids) == 1 else list(ids)


def _shortest(value: float) -> float:
    """The shortest decimal that is the same fp32: GGUF holds 1e-5 as 9.999999747378752e-06."""
    return float(str(np.float32(value)))
