"""What the bench counts on the tiny model, asserted: no machine changes it. Times are never looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import jsonschema
import pytest
import torch

from benchmarks.bare_pass import bare_forward_ms
from benchmarks.denominators import kv_bytes, weight_bytes
from benchmarks.ledger import Ledger, Measurement
from benchmarks.measuring import Lab, edit_distance, edit_share, with_bounds
from benchmarks.modes import modes_of
from benchmarks.plan import Cell, EngineCell, PeerCell, cells_named, plan
from benchmarks.results import FOLDER, read_ledger
from benchmarks.serving import compiles_of, counts_of, serve, serve_free
from benchmarks.workloads import Question, Workload, all_workloads
from shared_runtime.config import EngineConfig
from shared_runtime.conformance.target import Target
from shared_runtime.constraint import Constraint
from shared_runtime.errors import JumpforwardError
from shared_runtime.grammar_limits import GrammarLimits
from stages import get_stage
from tests.conftest import EngineFactory

ROOT = Path(__file__).resolve().parents[2]
CARD = Constraint.regex(r'\{"name": "[a-z]{3,6}", "rank": "(captain|cook|mate)"\}')
CARDS = Workload("cards", "why", "trap", (Question("a card", CARD), Question("another card", CARD)), 60, (1,), (1,))


@pytest.fixture(scope="module")
def lab(tiny_model: Path) -> Iterator[Lab]:
    config = EngineConfig(model=str(tiny_model), kv_pool_tokens=2048, limits=GrammarLimits(compile_timeout=120.0))
    yield Lab(config, bandwidth=1e10, pairs=1)
    torch.set_num_threads(1)


def cell(stage: int, mode: str, backend: str | None = None, workload: Workload = CARDS, batch: int = 1) -> Cell:
    spec = get_stage(stage)
    found = next(one for one in modes_of(spec) if one.name == mode)
    return Cell(workload, Target(spec, backend or spec.capabilities.backends[0]), found, batch)


@pytest.fixture(scope="module")
def rows(lab: Lab) -> dict[str, Measurement]:
    """Plain first: the others are compared with it."""
    wanted = [cell(5, "plain"), cell(1, "plain"), cell(2, "jump"), cell(5, "draft"), cell(5, "force"),
              cell(5, "force+draft")]
    made = with_bounds([lab.measure(one) for one in wanted])
    return {f"{one.stage} {one.mode}": one for one in made}


def test_every_token_came_in_one_way(rows: dict[str, Measurement]) -> None:
    for one in rows.values():
        ways = [one.counts[name] for name in ("sampled", "jumped", "forced", "accepted")]
        assert sum(ways) == one.counts["tokens"], one.key


def test_plain_decoding_spends_a_pass_on_every_token(rows: dict[str, Measurement]) -> None:
    for name in ("5 plain", "1 plain"):
        counts = rows[name].counts
        assert counts["steps"] == counts["forward_passes"] == counts["sampled"] == counts["tokens"]
        assert counts["masks"] == counts["mask_rows"] == counts["tokens"]
        assert counts["recomputed"] == counts["reencoded"] == counts["requeued"] == counts["drafted"] == 0
        assert counts["requests"] == 2


def test_jumping_saves_passes_and_drafts_keep_the_text(rows: dict[str, Measurement]) -> None:
    plain = rows["5 plain"]
    for name in ("2 jump", "5 draft", "5 force", "5 force+draft"):
        assert rows[name].counts["steps"] < plain.counts["steps"], name
    assert rows["5 draft"].texts == plain.texts
    assert rows["5 draft"].quality["edits_from_plain"] == plain.quality["edits_from_plain"] == 0
    assert rows["5 draft"].counts["accepted"] > 0
    assert rows["2 jump"].counts["jumped"] > 0
    assert rows["2 jump"].counts["requeued"] > 0
    assert rows["5 force"].counts["forced"] > 0


def test_a_mask_of_bits_is_an_eighth_of_one_of_booleans(rows: dict[str, Measurement]) -> None:
    assert rows["1 plain"].counts["mask_bytes"] == rows["1 plain"].counts["mask_rows"] * 49_152
    assert rows["5 plain"].counts["mask_bytes"] == rows["5 plain"].counts["mask_rows"] * 49_152 // 8


def test_the_speed_up_is_bounded_by_what_is_forced(rows: dict[str, Measurement]) -> None:
    share = rows["5 force"].denominators["not_sampled_share"]
    assert 0 < share < 1
    for one in rows.values():
        assert one.denominators["forced_share"] == share
        assert one.denominators["speedup_bound"] == pytest.approx(1 / (1 - share), rel=1e-3)


def test_forcing_spells_as_the_tokenizer_does(rows: dict[str, Measurement]) -> None:
    assert rows["5 force"].quality["canonical_share"] >= rows["5 plain"].quality["canonical_share"]
    for one in rows.values():
        assert 0 < one.quality["allowed_mass"] <= 1
        assert one.quality["nll_per_byte"] > 0


def test_rows_are_of_the_schema_and_come_back_from_it(rows: dict[str, Measurement]) -> None:
    ledger = Ledger.begin("cpu", {})
    ledger.measurements = list(rows.values())
    data = json.loads(json.dumps(asdict(ledger)))
    jsonschema.validate(data, json.loads((ROOT / "benchmarks" / "ledger.schema.json").read_text(encoding="utf-8")))
    assert Ledger.of(data) == ledger


def test_a_shared_prompt_is_found_in_the_cache(make_engine: EngineFactory) -> None:
    twice = Workload("twice", "w", "t", (Question("the very same prompt", CARD),) * 2, 60, (1,), ())
    engine = make_engine(stage=5, overlap=False, trace=True)
    counts = counts_of(serve(engine, twice, 1))
    assert counts["cached"] > 0
    assert counts_of(serve(engine, twice, 1)) == counts  # the cache is empty when a run begins


def test_only_what_was_refused_is_computed_again(rows: dict[str, Measurement]) -> None:
    """A refused draft was read, and then what came instead is."""
    counts = rows["5 draft"].counts
    assert 0 <= counts["recomputed"] <= counts["drafted"] - counts["accepted"]


def test_a_grammar_of_two_requests_is_compiled_once(rows: dict[str, Measurement]) -> None:
    for one in rows.values():
        assert one.counts["requests"] == 2
        assert one.counts["compiles"] == 1, one.key


def test_every_stage_says_how_many_grammars_it_has_compiled(make_engine: EngineFactory) -> None:
    other = Workload("other", "w", "t", (Question("x", Constraint.regex("ab")),), 8, (1,), ())
    for stage in (1, 2, 3, 4, 5):
        engine = make_engine(stage=stage, overlap=False)
        assert compiles_of(engine) == 0
        for workload, known in ((CARDS, 1), (CARDS, 1), (other, 2)):
            serve(engine, workload, 1)
            assert compiles_of(engine) == known, stage


def test_plain_decoding_reads_every_place_once(make_engine: EngineFactory) -> None:
    engine = make_engine(stage=5, overlap=False, trace=True)
    counts = counts_of(serve(engine, CARDS, 2))
    assert counts["recomputed"] == 0
    ends = sum(len(one.prompt_ids) + len(one.token_ids) - 1 for one in serve(engine, CARDS, 2).results)
    assert counts["fed"] + counts["cached"] == ends


def test_the_free_run_writes_as_much(make_engine: EngineFactory) -> None:
    engine = make_engine(stage=5, overlap=False)
    lengths = serve(engine, CARDS, 2).lengths
    free = serve_free(engine, CARDS, 2, lengths)
    assert free.lengths == lengths
    assert all(one.counts["masks"] == 0 for one in free.results)


def test_what_a_request_cannot_have_is_an_error(make_engine: EngineFactory) -> None:
    bad = Workload("bad", "w", "t", (Question("x", Constraint.regex("(")),), 8, (1,), ())
    with pytest.raises(JumpforwardError):
        serve(make_engine(stage=5, overlap=False), bad, 1)


def test_bytes_of_a_pass(make_engine: EngineFactory) -> None:
    """Two layers of two KV heads of 16, four bytes a number; weights as the file holds them."""
    engine = make_engine()
    assert kv_bytes(engine, 10) == 2 * 10 * 2 * 2 * 16 * 4
    decoder = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96 + 2 * 64) + 64
    assert weight_bytes(engine) == 4 * (decoder + 49_152 * 64)


def test_the_bare_pass_leaves_the_memory_as_it_was(make_engine: EngineFactory) -> None:
    engine = make_engine()
    free = engine.parts.memory.pool.available
    assert bare_forward_ms(engine, 2, 5, repeats=2) > 0
    assert engine.parts.memory.pool.available == free
    with pytest.raises(ValueError, match="no room for 2 x 5000"):
        bare_forward_ms(engine, 2, 5000)
    engine.check_integrity()


def test_edit_distance() -> None:
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("", "abc") == edit_distance("abc", "") == 3
    assert edit_share(["abcd", "x"], ["abcf", "x"]) == pytest.approx(1 / 5)


def test_the_plan_asks_a_stage_only_for_what_it_has() -> None:
    workloads = all_workloads()
    cells = plan(workloads, quick=False)
    assert len({one.key for one in cells}) == len(cells)
    own = [one for one in cells if isinstance(one, Cell)]
    assert {one.target.spec.id for one in own} == {1, 2, 3, 4, 5}
    for one in own:
        assert all(one.target.supports(kind) for kind in one.workload.kinds), one.key
    assert {one.target.spec.id for one in own if one.workload.name == "tool_call"} == {4, 5}
    asked = {(one.peer.loop, one.peer.backend) for one in cells if isinstance(one, PeerCell)}
    assert asked == {("transformers", None), ("transformers", "xgrammar"), ("transformers", "llguidance"),
                     ("transformers", "outlines"), ("outlines", "outlines"), ("guidance", "llguidance"),
                     ("llama.cpp", None), ("llama.cpp", "gbnf")}
    assert all(one.batch == 1 for one in cells if isinstance(one, PeerCell) and one.peer.own_environment)
    assert len([one for one in cells if isinstance(one, EngineCell)]) == 4


def test_the_quick_plan_is_a_part_of_the_whole() -> None:
    workloads = all_workloads()
    quick, full = plan(workloads, quick=True), plan(workloads, quick=False)
    assert {one.key for one in quick} < {one.key for one in full}
    assert len(quick) < 20
    assert {one.target.spec.id for one in quick[:8] if isinstance(one, Cell)} == {1, 2, 3, 4, 5}  # if time is up there
    assert plan(workloads, quick=True, stages=[2], peers=False, engines=False) == [
        one for one in quick if isinstance(one, Cell) and one.target.spec.id == 2]


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("key", ["ship_card/2/fsm/jump/1", "ship_card/5/xgrammar/draft/1",
                                 "ship_card/5/xgrammar/force+draft/1"])
def test_the_counts_of_the_kept_ledger_are_those_of_a_run(key: str, embedded_folder: Path) -> None:
    """On the real model, every figure that no machine changes; a change that changes one must measure again."""
    kept = next(one for one in read_ledger(FOLDER / "quick.json").measurements if one.key == key)
    [found] = cells_named([key])
    assert isinstance(found, Cell)
    lab = Lab(EngineConfig(model=str(embedded_folder), kv_pool_tokens=2048), bandwidth=1e10, pairs=1)
    with lab.engine(found, trace=True) as engine:
        run = serve(engine, found.workload, found.batch)
    assert [one.text for one in run.results] == kept.texts
    counts = counts_of(run)
    assert {name: kept.counts[name] for name in counts} == counts
    for name in ("steps", "sampled", "fed", "masks"):
        assert counts[name] > 0
    torch.set_num_threads(1)
