"""Several ranks run the loop together: the same results on each, and no hang when one goes astray or dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.execution.disturbance import disturb
from shared_runtime.execution.parallel_engine import ParallelEngine
from shared_runtime.execution.rank_group import RankDivergenceError, RankGroup, RankLostError
from shared_runtime.request_factory import Ask
from shared_runtime.sampling_params import SamplingParams
from tests.ranks import run_on_ranks
from tests.tiny_models import tiny_folder

Outcome = list[tuple[str, str, str, list[int]]]

ASKS = (
    Ask(prompt="The year ", sampling=SamplingParams(max_new_tokens=8), constraint=Constraint.regex("[0-9]{4}")),
    Ask(prompt="Once", sampling=SamplingParams(max_new_tokens=8, temperature=0.9, seed=3)),
    Ask(prompt="A word ", sampling=SamplingParams(max_new_tokens=8, temperature=0.9, seed=4),
        constraint=Constraint.regex("[a-z]{2,20}!")),
    Ask(prompt="Bad ", sampling=SamplingParams(max_new_tokens=8), constraint=Constraint.regex("(")),
)


@pytest.fixture(scope="module")
def shared_model(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose 8 heads and 4 key heads two ranks can share."""
    return tiny_folder(tmp_path_factory.mktemp("shared"), tokenizer_from=embedded_folder,
                       num_attention_heads=8, num_key_value_heads=4)


def _config(model: Path, **settings: object) -> EngineConfig:
    values = {"model": str(model), "stage": 5, "kv_pool_tokens": 512, "threads": 1} | settings
    return EngineConfig(**values)  # type: ignore[arg-type]  # EngineConfig checks them


def _serve(group: RankGroup, model: Path, settings: dict[str, object], noisy: bool) -> Outcome | str:
    """Run the asks; on rank 1, when `noisy`, over logits with some noise. Returns the outcome or what ended it."""
    engine = ParallelEngine(_config(model, **settings), group)
    if noisy and group.rank == 1:
        disturb(engine.parts.runner, seed=0)
    try:
        if group.rank > 0:
            results = engine.follow()
        else:
            for ask in ASKS:
                engine.submit(ask)
            results = engine.run()
            engine.close()
    except RankDivergenceError as error:
        return str(error)
    engine.engine.check_integrity()
    return sorted((r.rid, r.finish_reason, r.text, r.token_ids) for r in results)


def _serve_with_a_wrong_one(group: RankGroup, model: Path) -> Outcome:
    engine = ParallelEngine(_config(model), group)
    if group.rank > 0:
        results = engine.follow()
    else:
        engine.submit(ASKS[0])
        engine.submit(Ask(prompt=""))
        (ended,) = engine.submit(Ask(prompt="x", sampling=SamplingParams(max_new_tokens=200, ignore_eos=True)))
        for _ in range(3):
            engine.step()
        engine.abort(ended)
        results = engine.run()
        engine.close()
    return sorted((r.rid, r.finish_reason, r.text, r.token_ids) for r in results)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"kv_pool_tokens": 40, "new_token_ratio": 0.1, "chunked_prefill_size": 3}],
                         ids=["roomy", "tight"])
def test_two_ranks_serve_what_one_serves(settings: dict[str, object], shared_model: Path) -> None:
    ranks = run_on_ranks(2, _serve, shared_model, settings, False)
    assert ranks[0] == ranks[1]
    with Engine(_config(shared_model)) as alone:
        results = alone.generate([ask.prompt or "" for ask in ASKS], sampling=[ask.sampling for ask in ASKS],
                                 constraint=[ask.constraint for ask in ASKS])
    assert [(outcome[1], outcome[2]) for outcome in ranks[0]] == [(r.finish_reason, r.text) for r in results]


@pytest.mark.slow
def test_refusals_and_aborts_are_the_same_on_each_rank(shared_model: Path) -> None:
    ranks = run_on_ranks(2, _serve_with_a_wrong_one, shared_model)
    assert ranks[0] == ranks[1]
    assert [reason for _, reason, _, _ in ranks[0]] == ["stop", "error", "abort"]


def test_a_rank_that_computes_differently_stays_in_step_where_ids_are_agreed_on(shared_model: Path) -> None:
    """The divergence lab, with the sync: a batch that has a grammar agrees on every token."""
    ranks = run_on_ranks(2, _serve_bound, shared_model, True)
    assert ranks[0] == ranks[1]
    assert all(reason == "stop" for _, reason, _, _ in ranks[0])


@pytest.mark.slow
def test_without_the_sync_it_goes_astray_and_is_told_at_once(shared_model: Path) -> None:
    """The divergence lab, without: a report in the time of a message, and no hang."""
    started = time.monotonic()
    ranks = run_on_ranks(2, _serve_bound, shared_model, False, timeout_s=60)
    assert all(isinstance(outcome, str) and "different tokens" in outcome for outcome in ranks), ranks
    assert time.monotonic() - started < 60, "the watchdog, not the time limit, ended it"


def _serve_bound(group: RankGroup, model: Path, synced: bool) -> Outcome | str:
    engine = ParallelEngine(_config(model, sync_token_ids=synced), group)
    if group.rank == 1:
        disturb(engine.parts.runner, seed=0)
    try:
        if group.rank > 0:
            results = engine.follow()
        else:
            params = SamplingParams(max_new_tokens=40, temperature=1.0, seed=1)
            engine.submit(Ask(prompt="A word ", sampling=params,
                                   constraint=Constraint.regex("[a-z]{9,12} [0-9]{3}")))
            results = engine.run()
            engine.close()
    except RankDivergenceError as error:
        return str(error)
    return [(r.rid, r.finish_reason, r.text, r.token_ids) for r in results]


@pytest.mark.slow
def test_a_killed_rank_ends_the_others_with_an_error(shared_model: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    with pytest.raises(AssertionError, match="rank 1 died"):
        run_on_ranks(2, _die, shared_model, report, timeout_s=40)
    assert "lost the others" in report.read_text(encoding="utf-8")


def _die(group: RankGroup, model: Path, report: Path) -> str:
    engine = ParallelEngine(_config(model), group)
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    engine.submit(ASKS[0])
    try:
        engine.run()
    except RankLostError as error:
        report.write_text(str(error), encoding="utf-8")
        return str(error)
    return "nobody noticed"
