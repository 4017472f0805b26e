"""Tiny random checkpoints: real Hugging Face folders that run in milliseconds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from shared_runtime.model.config import ModelConfig
from shared_runtime.model.weights import expected_shapes

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json",
                    "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt")

LLAMA_CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": True,
    "dtype": "float32",
    "vocab_size": 300,
}


def random_weights(config: ModelConfig, *, seed: int = 0) -> dict[str, torch.Tensor]:
    """Weights large enough that every part of the model moves the logits, biases and norms included."""
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, torch.Tensor] = {}
    for name, shape in expected_shapes(config).items():
        values = torch.randn(shape, generator=generator)
        if name == "model.embed_tokens.weight":
            made[name] = values * 0.5
        elif len(shape) == 2:
            made[name] = values * shape[1] ** -0.5
        elif name.endswith(".bias"):
            made[name] = values * 0.2
        else:
            made[name] = 1 + values * 0.2
    return made


def write_folder(folder: Path, config: dict[str, object], *, seed: int = 0) -> Path:
    """Write config.json and random weights to match; returns `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(random_weights(ModelConfig.from_json(config), seed=seed), folder / "model.safetensors")
    return folder


def tiny_folder(folder: Path, *, tokenizer_from: Path, vocab_size: int = 49_152, seed: int = 0,
                **changes: object) -> Path:
    """A tiny random Llama with the embedded model's vocabulary and tokenizer, for fast tests of the runtime.

    Args:
        folder: where to write it.
        tokenizer_from: a model folder whose tokenizer files and generation config are copied.
        vocab_size: width of the logits.
        seed: of the weights.
        changes: fields of config.json to set beside `LLAMA_CONFIG`'s.
    """
    config = LLAMA_CONFIG | {"vocab_size": vocab_size, "max_position_embeddings": 2048} | changes
    write_folder(folder, config, seed=seed)
    for name in _TOKENIZER_FILES:
        if (tokenizer_from / name).exists():
            shutil.copy(tokenizer_from / name, folder / name)
    return folder


def save_with_transformers(folder: Path, family: str, fields: Mapping[str, object] | None = None, *,
                           seed: int = 0, max_shard_size: str = "1GB") -> Path:
    """A random checkpoint that `transformers` itself makes and saves.

    Args:
        folder: where to write it.
        family: "llama", "qwen2", "qwen3", "mistral" or "smollm3".
        fields: fields of the config beside the tiny sizes.
        seed: of the weights.
        max_shard_size: as `save_pretrained` takes it.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

    sizes = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
             "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}
    build: Callable[..., PreTrainedModel] = AutoModelForCausalLM.from_config
    model = build(AutoConfig.for_model(family, **(sizes | dict(fields or {}))))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if "embed_tokens" in name:
                parameter.copy_(values * 0.5)
            elif parameter.dim() == 2:
                parameter.copy_(values * parameter.shape[1] ** -0.5)
            else:
                parameter.copy_(values * 0.2 + (0 if name.endswith(".bias") else 1))
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return folder
