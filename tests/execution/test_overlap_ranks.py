"""Overlap on several ranks: the same order of messages on each, and the tokens of ranks without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared_runtime.config import EngineConfig
from shared_runtime.execution.parallel_engine import ParallelEngine
from shared_runtime.execution.rank_group import RankGroup
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import StageOptions
from shared_runtime.tokenizer import Tokenizer
from tests.execution.test_rank_core import _asks, _holds, core
from tests.ranks import run_on_ranks
from tests.tiny_models import tiny_folder


@pytest.fixture(scope="module")
def shared_model(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose 8 heads and 4 key heads two ranks can share."""
    return tiny_folder(tmp_path_factory.mktemp("shared"), tokenizer_from=embedded_folder,
                       num_attention_heads=8, num_key_value_heads=4)


@pytest.mark.slow
def test_the_core_with_the_worker_sampling(shared_model: Path) -> None:
    """The worker agrees on ids while the scheduler agrees on what is ready: in groups of their own."""
    settings = {"stage": 4, "backend": "xgrammar", "overlap": True}
    _holds(run_on_ranks(2, core, shared_model, settings, 9, timeout_s=300), Tokenizer.from_folder(shared_model), 9)


def both_ways(group: RankGroup, model: Path, stage: int) -> list[Any]:
    """On one rank: tokens and gate decisions, without overlap and with it."""
    told: list[Any] = []
    for overlap in (False, True):
        engine = ParallelEngine(EngineConfig(
            model=str(model), stage=stage, backend="xgrammar", threads=1, exact=True, overlap=overlap, trace=True,
            options=StageOptions(jump_forward=False),
            limits=GrammarLimits(compile_timeout=120.0, mask_timeout=30.0)), group)
        if group.rank > 0:
            told.append(sorted((one.rid, tuple(one.token_ids)) for one in engine.follow()))
            continue
        for rid, ask in _asks(6, 20).items():
            engine.submit(ask, rid)
        results, gates = [], 0
        while engine.has_work:
            record = engine.step()
            assert record is not None
            gates += record.overlap.on
            results += [event.result for event in engine.take_events() if event.result is not None]
        engine.close()
        assert (gates > 5) == overlap
        told.append(sorted((one.rid, tuple(one.token_ids)) for one in results))
    return told


@pytest.mark.slow
@pytest.mark.parametrize("stage", [4, 5], ids=["event", "delayed"])
def test_two_ranks_get_the_same_tokens_with_overlap_and_without(stage: int, shared_model: Path) -> None:
    ranks = run_on_ranks(2, both_ways, shared_model, stage, timeout_s=300)
    without, with_overlap = ranks[0]
    assert without == with_overlap
    assert ranks[1] == ranks[0]
    assert len(without) == 6
