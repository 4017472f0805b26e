"""The error of coarser weights is that of the logits which the model would have given in fp32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.weight_error import logits_of, main, table, weight_errors
from shared_runtime.config import EngineConfig
from shared_runtime.engine import Engine
from shared_runtime.model.packed_linear import can_pack

TEXT = "The harbour is on the north side of the island, behind a wall that the monks built."


@pytest.fixture
def config(tiny_model: Path) -> EngineConfig:
    return EngineConfig(model=str(tiny_model), kv_pool_tokens=256)


def test_a_text_has_the_same_logits_however_many_positions_a_pass_reads(config: EngineConfig) -> None:
    with Engine(config) as engine:
        ids = engine.tokenizer.encode(TEXT)
        at_once = logits_of(engine, ids, 256)
        assert at_once.shape == (len(ids), engine.tokenizer.vocabulary.width)
        for count in (1, 4, len(ids) - 1):
            torch.testing.assert_close(logits_of(engine, ids, count), at_once, atol=1e-4, rtol=1e-4)
        engine.check_integrity()
        with pytest.raises(ValueError, match="no room for 257 tokens"):
            logits_of(engine, [1] * 257, 256)
        engine.check_integrity()


@pytest.mark.skipif(not can_pack(torch.bfloat16, torch.device("cpu")), reason="this processor packs no bf16")
def test_fewer_bits_err_more_and_the_shares_are_shares(config: EngineConfig) -> None:
    rows = weight_errors(config, TEXT, at_once=(64, 4))
    assert [(row.dtype, row.weights, row.at_once) for row in rows] == [
        ("bf16", "auto", 64), ("bf16", "auto", 4), ("bf16", "int8", 64), ("bf16", "int8", 4)]
    bf16, int8 = rows[0], rows[2]
    assert 0 < bf16.mean < int8.mean < int8.largest
    assert rows[3].mean == pytest.approx(int8.mean, rel=0.2)  # the kernel, and the product of the rounded weights
    assert all(0 <= row.same_token <= 1 and row.nll_fp32 == rows[0].nll_fp32 for row in rows)


def test_the_command_prints_and_keeps_the_same_table(config: EngineConfig, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "weights.json"
    assert main(["--model", str(config.model), "--json", str(path)]) == 0
    assert capsys.readouterr().out == table(json.loads(path.read_text())["rows"]) + "\n"
