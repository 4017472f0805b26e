"""Weights are read from every folder layout we claim, and a faulty one is refused naming file and tensor."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from shared_runtime.errors import CheckpointError
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.dummy import dummy_weights
from shared_runtime.model.weights import expected_shapes, load_weights
from shared_runtime.model_runner import load_model
from tests.model_driver import ModelDriver
from tests.tiny_models import LLAMA_CONFIG, write_folder

CPU = torch.device("cpu")
NORM = "model.norm.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "model", LLAMA_CONFIG)


def load(folder: Path, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return load_weights(folder, ModelConfig.from_folder(folder), dtype=dtype, device=CPU)


def rewrite(folder: Path, changes: dict[str, Tensor | None]) -> None:
    """Replace, add, or (None) remove tensors of the single file."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in changes.items():
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    path.unlink()
    save_file(tensors, path)


def shard(folder: Path) -> None:
    """Split the single file in two, with an index."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    names = sorted(tensors)
    path.unlink()
    weight_map: dict[str, str] = {}
    for i, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-{i:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def refused(folder: Path, *said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    for text in said:
        assert text in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.fix


def test_one_file_and_shards_hold_the_same_model(folder: Path) -> None:
    single = load(folder)
    shard(folder)
    sharded = load(folder)
    assert single.keys() == sharded.keys() == expected_shapes(ModelConfig.from_folder(folder)).keys()
    assert all(torch.equal(single[name], sharded[name]) for name in single)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_arrive_in_the_dtype_asked_for(folder: Path, dtype: torch.dtype) -> None:
    original = load_file(folder / "model.safetensors")
    for name, tensor in load(folder, dtype).items():
        assert tensor.dtype == dtype
        assert torch.equal(tensor, original[name].to(dtype))


def test_full_precision_weights_stay_in_the_file_until_used(folder: Path) -> None:
    """Mapped tensors lie packed, as in the file; copies have gaps. It is what makes a start quick."""
    tensors = load(folder).values()
    first = min(tensor.data_ptr() for tensor in tensors)
    last = max(tensor.data_ptr() + tensor.nbytes for tensor in tensors)
    assert last - first == sum(tensor.nbytes for tensor in tensors)


def test_a_tied_checkpoint_may_carry_a_head_and_old_ones_their_frequencies(folder: Path) -> None:
    rewrite(folder, {"lm_head.weight": torch.zeros(300, 64),
                     "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)})
    assert "lm_head.weight" not in load(folder)


def test_a_missing_tensor_is_named_with_its_shape(folder: Path) -> None:
    rewrite(folder, {NORM: None, "model.layers.1.mlp.up_proj.weight": None})
    refused(folder, "model.safetensors: ", "tensor model.layers.1.mlp.up_proj.weight of shape [96, 64] is missing",
            "and 1 more")


def test_an_untied_config_asks_for_a_head(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG | {"tie_word_embeddings": False}))
    refused(folder, "tensor lm_head.weight of shape [300, 64] is missing")


def test_an_unexpected_tensor_is_named(folder: Path) -> None:
    rewrite(folder, {"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)})
    refused(folder, "model.safetensors: ", "model.layers.0.self_attn.q_proj.bias is unexpected in a llama model")


def test_a_misshapen_tensor_is_named_with_both_shapes(folder: Path) -> None:
    rewrite(folder, {"model.embed_tokens.weight": torch.zeros(299, 64)})
    refused(folder, "model.safetensors: ", "tensor model.embed_tokens.weight has shape [299, 64]", "[300, 64]")


def test_a_tensor_that_holds_no_floats_is_named(folder: Path) -> None:
    rewrite(folder, {NORM: torch.ones(64, dtype=torch.int8)})
    refused(folder, f"tensor {NORM} holds I8 values, not floats")


@pytest.mark.parametrize("keep", [0, 4, 300, -1])
def test_a_truncated_file_is_refused(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refused(folder, f"{path}: not a whole safetensors file", "cut short")


def test_a_file_of_something_else_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_text("<html>404 not found, please try again later</html>")
    refused(folder, "model.safetensors: not a whole safetensors file")


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    refused(folder, "model.safetensors: the weights are missing", "--load-format dummy")
    (folder / "pytorch_model.bin").write_bytes(b"")
    refused(folder, "the weights are missing", "only safetensors")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere: no such model folder"):
        load_weights(tmp_path / "nowhere", ModelConfig.from_json(LLAMA_CONFIG), dtype=torch.float32, device=CPU)


def test_a_missing_shard_is_named(folder: Path) -> None:
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    refused(folder, "model-00002-of-00002.safetensors: the shard is missing")


def test_a_shard_without_a_tensor_that_the_index_puts_there_is_named(folder: Path) -> None:
    shard(folder)
    path = folder / "model-00001-of-00002.safetensors"
    tensors = load_file(path)
    name = sorted(tensors)[0]
    del tensors[name]
    path.unlink()
    save_file(tensors, path)
    refused(folder, f"{path}: tensor {name} is missing")


@pytest.mark.parametrize("index", ["{", '{"weight_map": 3}', '{"weight_map": {"a": 3}}',
                                   '{"weight_map": {"a": "../a.safetensors"}}'])
def test_a_broken_index_is_refused(folder: Path, index: str) -> None:
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(CheckpointError, match=re.escape("model.safetensors.index.json: ")):
        load(folder)


def test_dummy_weights_need_config_json_alone_and_repeat_by_seed(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    config, decoder = load_model(folder, dtype=torch.float32, device=CPU, exact=False, load_format="dummy")
    logits = ModelDriver(config, decoder).feed({"a": [1, 2, 3]})["a"]
    assert torch.isfinite(logits).all()
    assert logits.std() > 0

    weights = dummy_weights(config, dtype=torch.float32, device=CPU)
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == expected_shapes(config)
    again, other = (dummy_weights(config, dtype=torch.float32, device=CPU, seed=seed) for seed in (0, 1))
    name = "model.embed_tokens.weight"
    assert torch.equal(weights[name], again[name])
    assert not torch.equal(weights[name], other[name])
