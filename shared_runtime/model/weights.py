"""Reading a model folder's safetensors files.

Tensors stay mapped to their file where dtype and device allow it: the 538 MB of the embedded model are then
ready in some hundredths of a second, and the first pass reads them in. Joining query, key and value to one matrix
would be a copy: that is left to the kinds of linear layer that copy anyway (`linear_kind`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from shared_runtime.errors import CheckpointError
from shared_runtime.model.config import ModelConfig, expect_folder
from shared_runtime.model.json_fields import JsonFields, read_json_object

Shape = tuple[int, ...]
Shapes = dict[str, Shape]
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_FLOATS = ("F64", "F32", "F16", "BF16")
_REFETCH = "the download may be cut short; fetch it again"


def expected_shapes(config: ModelConfig) -> Shapes:
    """Every tensor a model of this shape has, by Hugging Face name."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q_width, kv_width = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    shapes: Shapes = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    linears = {
        "self_attn.q_proj": (q_width, hidden, config.qkv_bias),
        "self_attn.k_proj": (kv_width, hidden, config.qkv_bias),
        "self_attn.v_proj": (kv_width, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, q_width, config.o_bias),
        "mlp.gate_proj": (inner, hidden, config.mlp_bias),
        "mlp.up_proj": (inner, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, inner, config.mlp_bias),
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if config.qk_norm:
        norms |= {"self_attn.q_norm": config.head_dim, "self_attn.k_norm": config.head_dim}
    for layer in range(config.n_layers):
        for name, (n_out, n_in, has_bias) in linears.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = (n_out, n_in)
            if has_bias:
                shapes[f"model.layers.{layer}.{name}.bias"] = (n_out,)
        for name, width in norms.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = (width,)
    shapes["model.norm.weight"] = (hidden,)
    if not config.tied:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def load_weights(folder: Path, config: ModelConfig, *, dtype: torch.dtype,
                 device: torch.device) -> dict[str, Tensor]:
    """Read every tensor of the model: `model.safetensors`, or the shards that its index names.

    Returns:
        tensors by name, exactly those of `expected_shapes(config)`.

    Raises:
        CheckpointError: a file is missing, truncated or unreadable, or a tensor is missing, unexpected, of
            another shape, or not a float; it names the file and the tensor.
    """
    expect_folder(folder)
    shapes = expected_shapes(config)
    loaded: dict[str, Tensor] = {}
    for path, names in _files(folder):
        loaded |= _load_file(path, names, shapes, config, dtype=dtype, device=device)
    missing = [name for name in shapes if name not in loaded]
    if missing:
        raise CheckpointError(f"tensor {missing[0]} of shape {list(shapes[missing[0]])} is missing"
                              + _and_more(missing), where=str(_listing(folder)),
                              fix="config.json and the weights must be of one model")
    return loaded


def _listing(folder: Path) -> Path:
    """The file that says which tensors a folder has."""
    return folder / (_INDEX if (folder / _INDEX).exists() else _SINGLE)


def _files(folder: Path) -> list[tuple[Path, set[str] | None]]:
    """The safetensors files of a folder, each with the names its index promises (None without an index)."""
    listing = _listing(folder)
    if listing.name == _SINGLE:
        if not listing.exists():
            raise CheckpointError("the weights are missing", where=str(listing), fix=_weights_fix(folder))
        return [(listing, None)]
    weight_map = JsonFields(read_json_object(listing), str(listing)).inner("weight_map")
    shards: dict[str, set[str]] = {}
    for name in weight_map.values:
        shards.setdefault(weight_map.text(name), set()).add(name)
    for shard in shards:
        if Path(shard).name != shard:
            raise weight_map.error(shard, "a shard must be a file of the same folder")
        if not (folder / shard).exists():
            raise CheckpointError(f"the shard is missing; {_INDEX} puts {len(shards[shard])} tensors in it",
                                  where=str(folder / shard), fix=_REFETCH)
    return [(folder / shard, names) for shard, names in sorted(shards.items())]


def _weights_fix(folder: Path) -> str:
    if any(folder.glob("*.bin")) or any(folder.glob("*.pth")):
        return "only safetensors files are read, since pickled weights can run code: convert the checkpoint"
    return "or use --load-format dummy for random weights"


def _load_file(path: Path, promised: set[str] | None, shapes: Shapes, config: ModelConfig, *,
               dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    loaded: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            _check_promise(path, promised, names)
            unexpected = sorted(name for name in names if name not in shapes and not _ignored(name, config))
            if unexpected:
                raise CheckpointError(f"tensor {unexpected[0]} is unexpected in a {config.family} model"
                                      + _and_more(unexpected), where=str(path),
                                      fix="config.json and the weights must be of one model")
            for name in sorted(names & shapes.keys()):
                header = file.get_slice(name)
                _check_header(path, name, tuple(header.get_shape()), shapes[name], header.get_dtype())
                loaded[name] = file.get_tensor(name).to(device=device, dtype=dtype)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"not a whole safetensors file: {error}", where=str(path),
                              fix=_REFETCH) from error
    return loaded


def _ignored(name: str, config: ModelConfig) -> bool:
    """Tensors that some checkpoints carry although the config makes them redundant."""
    return name.endswith("rotary_emb.inv_freq") or (config.tied and name == "lm_head.weight")


def _check_promise(path: Path, promised: set[str] | None, names: set[str]) -> None:
    lacking = sorted((promised or set()) - names)
    if lacking:
        raise CheckpointError(f"tensor {lacking[0]} is missing, and {_INDEX} says it is in this file"
                              + _and_more(lacking), where=str(path), fix=_REFETCH)


def _check_header(path: Path, name: str, found: Shape, expected: Shape, kind: str) -> None:
    if found != expected:
        raise CheckpointError(
            f"tensor {name} has shape {list(found)}, and config.json asks for {list(expected)}",
            where=str(path), fix="config.json and the weights must be of one model")
    if kind not in _FLOATS:
        raise CheckpointError(f"tensor {name} holds {kind} values, not floats", where=str(path),
                              fix="use the checkpoint in float32, bfloat16 or float16")


def _and_more(names: Iterable[str]) -> str:
    rest = len(list(names)) - 1
    return f", and {rest} more" if rest else ""
