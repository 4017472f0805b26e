"""A config.json is read as Hugging Face means it, and a wrong one is refused naming file and field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from shared_runtime.errors import CheckpointError
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.rope import RopeConfig
from tests.tiny_models import LLAMA_CONFIG

ABSENT = object()


def read(**changes: object) -> ModelConfig:
    config = {name: value for name, value in (LLAMA_CONFIG | changes).items() if value is not ABSENT}
    return ModelConfig.from_json(config)


def family(name: str, **changes: object) -> ModelConfig:
    return read(architectures=[f"{name}ForCausalLM"], model_type=name.lower(), **changes)


def test_both_layouts_are_read_to_the_same_config() -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}
    new = read(rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, **scaling}, dtype="bfloat16")
    old = read(rope_parameters=ABSENT, rope_theta=500.0, rope_scaling={"rope_type": "llama3", **scaling},
               dtype=ABSENT, torch_dtype="bfloat16")
    oldest = read(rope_parameters=ABSENT, rope_theta=500.0, rope_scaling={"type": "llama3", **scaling},
                  dtype=ABSENT, torch_dtype="bfloat16")
    assert new == old == oldest
    assert new.dtype == torch.bfloat16
    assert new.rope == RopeConfig("llama3", 500.0, 8.0, 64, low_freq_factor=1.0, high_freq_factor=4.0)


def test_absent_fields_take_the_familys_defaults() -> None:
    bare = read(rope_parameters=ABSENT, num_key_value_heads=ABSENT, rms_norm_eps=ABSENT, hidden_act=ABSENT,
                tie_word_embeddings=ABSENT, dtype=ABSENT)
    assert bare.rope == RopeConfig(theta=10_000.0)
    assert bare.n_kv_heads == bare.n_heads == 4
    assert bare.rms_norm_eps == 1e-6
    assert bare.head_dim == 16
    assert not bare.tied
    assert bare.dtype is None
    assert family("Qwen3").head_dim == 128
    assert family("SmolLM3", tie_word_embeddings=ABSENT).tied


def test_null_means_absent() -> None:
    config = read(head_dim=None, num_key_value_heads=None, rope_scaling=None, sliding_window=None)
    assert (config.head_dim, config.n_kv_heads) == (16, 4)


def test_each_family_has_its_own_biases_and_norms() -> None:
    def parts(config: ModelConfig) -> tuple[bool, bool, bool, bool]:
        return config.qkv_bias, config.o_bias, config.mlp_bias, config.qk_norm

    assert parts(read()) == (False, False, False, False)
    assert parts(read(attention_bias=True, mlp_bias=True)) == (True, True, True, False)
    assert parts(family("Qwen2")) == (True, False, False, False)
    assert parts(family("Qwen3")) == (False, False, False, True)
    assert parts(family("Qwen3", attention_bias=True)) == (True, True, False, True)
    assert parts(family("Mistral")) == (False, False, False, False)


def test_the_model_type_decides_where_no_architecture_is_named() -> None:
    assert read(architectures=ABSENT, model_type="qwen3").family == "qwen3"
    with pytest.raises(CheckpointError, match=r"config\.json: model_type: model type 'gemma' is unsupported"):
        read(architectures=ABSENT, model_type="gemma")


def test_an_active_sliding_window_bounds_the_context_it_does_not_change() -> None:
    assert family("Mistral", sliding_window=None).context_length == 512
    assert family("Mistral", sliding_window=128).context_length == 128
    assert family("Mistral", sliding_window=1024).context_length == 512
    assert family("Mistral", max_position_embeddings=32768).context_length == 4096  # the family's default window
    windowed = {"sliding_window": 100, "max_window_layers": 1}
    assert family("Qwen2", **windowed).context_length == 512
    assert family("Qwen2", use_sliding_window=True, **windowed).context_length == 100
    assert family("Qwen2", use_sliding_window=True, sliding_window=100, max_window_layers=2).context_length == 512
    assert family("Qwen3", use_sliding_window=True, sliding_window=100, max_window_layers=0,
                  layer_types=["full_attention"] * 2).context_length == 512


def test_smollm3_leaves_out_rotation_where_its_config_says() -> None:
    assert family("SmolLM3", num_hidden_layers=8).no_rope_layers == {3, 7}
    assert family("SmolLM3", num_hidden_layers=4, no_rope_layer_interval=2).no_rope_layers == {1, 3}
    assert family("SmolLM3", no_rope_layers=[0, 1]).no_rope_layers == {0}


def test_yarn_infers_its_attention_factor() -> None:
    def factor(**changes: object) -> float:
        scaling = {"rope_type": "yarn", "rope_theta": 1e4, "original_max_position_embeddings": 64, **changes}
        return read(rope_parameters=scaling).rope.attention_factor

    assert factor(factor=4.0) == pytest.approx(0.1 * 1.3862943611 + 1)
    assert factor(factor=4.0, attention_factor=1.7) == 1.7
    assert factor(factor=1.0) == 1.0
    assert factor() == pytest.approx(0.1 * 2.0794415417 + 1)  # without a factor: 512 / 64
    assert factor(factor=4.0, mscale=1.0, mscale_all_dim=1.0) == 1.0


WRONG: dict[str, tuple[dict[str, object], str]] = {
    "architecture": ({"architectures": ["MambaForCausalLM"]}, "architectures: architecture 'MambaForCausalLM'"),
    "two architectures": ({"architectures": ["LlamaForCausalLM", "X"]}, "architectures: "),
    "activation": ({"hidden_act": "gelu"}, "hidden_act: activation 'gelu' is unsupported"),
    "quantised": ({"quantization_config": {"bits": 4}}, "quantization_config: quantised"),
    "missing size": ({"hidden_size": ABSENT}, "hidden_size: the field is missing"),
    "missing vocabulary": ({"vocab_size": ABSENT}, "vocab_size: the field is missing"),
    "missing context": ({"max_position_embeddings": ABSENT}, "max_position_embeddings: the field is missing"),
    "text for a number": ({"num_hidden_layers": "2"}, "num_hidden_layers: must be a whole number, not '2'"),
    "truth for a number": ({"num_hidden_layers": True}, "num_hidden_layers: must be a whole number"),
    "no layers": ({"num_hidden_layers": 0}, "num_hidden_layers: must be at least 1, not 0"),
    "number for truth": ({"tie_word_embeddings": 1}, "tie_word_embeddings: must be true or false, not 1"),
    "eps": ({"rms_norm_eps": -1.0}, "rms_norm_eps: must be above 0"),
    "heads do not divide": ({"num_key_value_heads": 3}, "num_key_value_heads: 3 key-value heads do not divide 4"),
    "width does not divide": ({"hidden_size": 66}, "hidden_size: 66 is not a multiple of 4"),
    "odd head": ({"head_dim": 15}, "head_dim: rotary embedding needs an even head width, not 15"),
    "dtype": ({"dtype": "int8"}, "dtype: data type 'int8' is unsupported"),
    "longrope": ({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}},
                 "rope_parameters: rope_type: rope scaling 'longrope' is unsupported"),
    "dynamic": ({"rope_parameters": ABSENT, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
                "rope_scaling: type: rope scaling 'dynamic' is unsupported"),
    "linear without factor": ({"rope_parameters": {"rope_type": "linear"}},
                              "rope_parameters: factor: the field is missing"),
    "llama3 without bounds": ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}},
                              "rope_parameters: low_freq_factor: the field is missing"),
    "rope is no object": ({"rope_parameters": [1]}, r"rope_parameters: must be an object, not \[1\]"),
    "partial rotation": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_field_is_refused_by_name(name: str) -> None:
    changes, said = WRONG[name]
    with pytest.raises(CheckpointError, match=r"^config\.json: " + said):
        read(**changes)


def test_smollm3_flags_must_cover_the_layers() -> None:
    with pytest.raises(CheckpointError, match=r"no_rope_layers: must hold a 0 or 1 for each of 2 layers"):
        family("SmolLM3", no_rope_layers=[1])


def test_a_folders_config_is_read_and_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(CheckpointError, match=r"config\.json: the file is missing"):
        ModelConfig.from_folder(tmp_path)
    path.write_text(json.dumps(LLAMA_CONFIG))
    assert ModelConfig.from_folder(tmp_path) == read()
    path.write_text(json.dumps(LLAMA_CONFIG)[:-20])
    with pytest.raises(CheckpointError, match=rf"{path}: not valid JSON"):
        ModelConfig.from_folder(tmp_path)
    path.write_text("[]")
    with pytest.raises(CheckpointError, match="holds a list, not an object"):
        ModelConfig.from_folder(tmp_path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(CheckpointError, match="cannot be read"):
        ModelConfig.from_folder(tmp_path)
