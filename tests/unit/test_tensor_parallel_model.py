"""A model shared by several processes says what one process alone says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from shared_runtime.errors import ConfigError
from shared_runtime.execution.rank_group import RankGroup, SingleRank
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.shard import local_config, valid_sizes
from shared_runtime.model_runner import load_model
from tests.model_driver import ModelDriver
from tests.ranks import run_on_ranks
from tests.tiny_models import save_with_transformers, write_folder

IDS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]
EIGHT_FOUR = {"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 64, "intermediate_size": 96,
              "num_hidden_layers": 2, "vocab_size": 128, "max_position_embeddings": 128}


def _logits(group: RankGroup, folder: Path, exact: bool) -> NDArray[np.float32]:
    """Prefill, then one token at a time: [len(IDS), width]."""
    config, decoder = load_model(folder, dtype=torch.float32, device=torch.device("cpu"), exact=exact, group=group)
    driver = ModelDriver(config, decoder, slots=64)
    rows = [driver.feed({"a": IDS[:6], "b": IDS[:3]})["a"]]
    rows += [driver.feed({"a": [token], "b": [token]})["a"] for token in IDS[6:]]
    return torch.cat(rows).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_two_ranks_give_the_logits_of_one(family: str, tmp_path: Path) -> None:
    fields = EIGHT_FOUR | {"attention_bias": family == "qwen3", "tie_word_embeddings": family == "llama"}
    if family == "llama":
        fields |= {"attention_bias": True, "mlp_bias": True}
    folder = save_with_transformers(tmp_path, family, fields)
    alone = _logits(SingleRank(), folder, exact=False)
    ranks = run_on_ranks(2, _logits, folder, False)
    assert np.array_equal(ranks[0], ranks[1])
    assert np.abs(ranks[0] - alone).max() <= 1e-4


@pytest.mark.slow
@pytest.mark.model
def test_three_ranks_share_the_real_model(embedded_folder: Path) -> None:
    alone = _logits(SingleRank(), embedded_folder, exact=False)
    ranks = run_on_ranks(3, _logits, embedded_folder, False)
    for other in ranks[1:]:
        assert np.array_equal(ranks[0], other)
    assert np.array_equal(ranks[0].argmax(-1), alone.argmax(-1))
    assert np.abs(ranks[0] - alone).max() <= 1e-3


def test_a_number_of_ranks_that_does_not_divide_the_model_is_named(tmp_path: Path) -> None:
    config = ModelConfig.from_folder(write_folder(tmp_path, {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 48, "hidden_size": 36,
        "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 9, "num_key_value_heads": 3,
        "head_dim": 4, "max_position_embeddings": 64, "hidden_act": "silu", "rms_norm_eps": 1e-5}))
    assert valid_sizes(config) == [1, 3]
    with pytest.raises(ConfigError) as caught:
        local_config(config, 2)
    assert "1, 3" in str(caught.value)
