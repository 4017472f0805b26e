"""Our decoder computes what `transformers` computes, for every family and every variation we claim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shared_runtime.model_runner import load_model
from tests.model_driver import ModelDriver
from tests.tiny_models import save_with_transformers

TOLERANCE = 1e-4  # logits here have a spread of about 1; fp32 rounding over two layers stays below 1e-5
SMOOTH = {"beta_fast": 8.0, "beta_slow": 0.5}
VARIATIONS: dict[str, tuple[str, dict[str, object]]] = {
    "llama_gqa_tied": ("llama", {"tie_word_embeddings": True}),
    "llama_untied": ("llama", {"tie_word_embeddings": False}),
    "llama_one_kv_head": ("llama", {"num_key_value_heads": 1}),
    "llama_full_heads": ("llama", {"num_key_value_heads": 4}),
    "llama_wide_heads": ("llama", {"head_dim": 24}),
    "llama_biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama_eps": ("llama", {"rms_norm_eps": 1e-2}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2_untied": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3_biases": ("qwen3", {"head_dim": 16, "attention_bias": True}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral_head_dim": ("mistral", {"sliding_window": None, "head_dim": 32}),
    "smollm3_no_rope_layers": ("smollm3", {"num_hidden_layers": 4, "no_rope_layer_interval": 2}),
    "smollm3_listed_layers": ("smollm3", {"no_rope_layers": [0, 1]}),
    "theta": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}}),
    "llama3": ("llama", {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}}),
    "yarn": ("qwen2", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}}),
    "yarn_all_fields": ("qwen3", {"head_dim": 32, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64,
        "truncate": False, "mscale": 0.7, "mscale_all_dim": 1.3, **SMOOTH}}),
    "yarn_attention_factor": ("llama", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64,
        "attention_factor": 1.5}}),
}


def some_ids(count: int, *, seed: int = 3) -> list[int]:
    ids: list[int] = torch.randint(0, 300, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return ids


def reference_logits(folder: Path, ids: list[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """[len(ids), width] float32, by `transformers`, plain attention."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    with torch.inference_mode():
        logits: Tensor = model(torch.tensor([ids])).logits[0].float()
    return logits


def open_driver(folder: Path, dtype: torch.dtype = torch.float32, *, exact: bool = False) -> ModelDriver:
    config, decoder = load_model(folder, dtype=dtype, device=torch.device("cpu"), exact=exact)
    return ModelDriver(config, decoder)


@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("name", VARIATIONS)
def test_logits_match_transformers_in_prefill_and_decode(name: str, exact: bool, tmp_path: Path) -> None:
    family, fields = VARIATIONS[name]
    folder = save_with_transformers(tmp_path, family, fields)
    ids = some_ids(150)  # past every `original_max_position_embeddings` above
    expected = reference_logits(folder, ids)
    assert expected.std() > 0.3, "logits this small would match whatever the model does"

    driver = open_driver(folder, exact=exact)
    found = [driver.feed({"a": ids[:100]})["a"], driver.feed({"a": ids[100:140]})["a"]]
    found += [driver.feed({"a": [token]})["a"] for token in ids[140:]]

    assert (torch.cat(found) - expected).abs().max() <= TOLERANCE


def test_a_ragged_decode_batch_gives_each_request_what_transformers_gives_it_alone(tmp_path: Path) -> None:
    folder = save_with_transformers(tmp_path, "llama")
    prompts = {f"r{n}": some_ids(n, seed=n) for n in (1, 7, 33, 70)}
    driver = open_driver(folder)
    driver.feed({name: ids[:-1] for name, ids in prompts.items() if len(ids) > 1})

    logits = driver.feed({name: ids[-1:] for name, ids in prompts.items()})

    for name, ids in prompts.items():
        assert (logits[name][0] - reference_logits(folder, ids)[-1]).abs().max() <= TOLERANCE


def test_a_batch_of_stretches_behind_prefixes_of_different_lengths_matches_too(tmp_path: Path) -> None:
    folder = save_with_transformers(tmp_path, "qwen3", {"head_dim": 16})
    prompts = {f"r{n}": some_ids(n, seed=n) for n in (12, 40, 90)}
    driver = open_driver(folder)
    driver.feed({"r12": prompts["r12"][:11], "r40": prompts["r40"][:3]})

    logits = driver.feed({"r12": prompts["r12"][11:], "r90": prompts["r90"], "r40": prompts["r40"][3:]})

    for name, ids in prompts.items():
        expected = reference_logits(folder, ids)[-logits[name].shape[0] :]
        assert (logits[name] - expected).abs().max() <= TOLERANCE


def test_shards_are_read_as_one_model(tmp_path: Path) -> None:
    folder = save_with_transformers(tmp_path, "llama", max_shard_size="40KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    ids = some_ids(20)

    found = open_driver(folder).feed({"a": ids})["a"]

    assert (found - reference_logits(folder, ids)).abs().max() <= TOLERANCE


def test_the_older_config_layout_means_the_same_model(tmp_path: Path) -> None:
    folder = save_with_transformers(tmp_path, *VARIATIONS["llama3"])
    ids = some_ids(90)
    expected = open_driver(folder).feed({"a": ids})["a"]

    path = folder / "config.json"
    config = json.loads(path.read_text())
    scaling = config.pop("rope_parameters")
    config |= {"rope_theta": scaling.pop("rope_theta"), "rope_scaling": scaling, "torch_dtype": config.pop("dtype")}
    path.write_text(json.dumps(config))

    assert torch.equal(open_driver(folder).feed({"a": ids})["a"], expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_half_precision_stays_near_full_precision(family: str, exact: bool, dtype: torch.dtype,
                                                  tmp_path: Path) -> None:
    folder = save_with_transformers(tmp_path, family)
    ids = some_ids(70)
    full = reference_logits(folder, ids)

    logits = open_driver(folder, dtype, exact=exact).feed({"a": ids})["a"]

    assert logits.dtype == torch.float32
    # As near as transformers itself comes in this dtype, with room for another order of rounding.
    theirs = (reference_logits(folder, ids, dtype) - full).abs().mean()
    assert (logits - full).abs().mean() <= 2 * theirs


def test_only_the_rows_asked_for_pass_the_head(tmp_path: Path) -> None:
    config, decoder = load_model(save_with_transformers(tmp_path, "llama"), dtype=torch.float32,
                                 device=torch.device("cpu"), exact=False)
    assert decoder.width == config.vocab_size == 300
    driver = ModelDriver(config, decoder)
    assert driver.feed({"a": some_ids(9), "b": some_ids(4)})["a"].shape == (9, 300)
    assert driver.runner.forward_passes == 1
