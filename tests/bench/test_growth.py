"""Growth is linear or better in everything that is counted; times are plotted, and never asserted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import jsonschema
import pytest
import torch

from benchmarks.curve import Point, power
from benchmarks.growth import CURVES, Growth, GrowthCell, growth_plan, record_regex, record_text, states_of
from benchmarks.ledger import Ledger
from benchmarks.mask_engines import fsm_builder
from benchmarks.plots import write_plots
from benchmarks.report import again, growth_table, losses
from benchmarks.session import Session
from shared_runtime.config import EngineConfig
from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import StageContext
from shared_runtime.tokenizer import Tokenizer
from stages.stage2_jump_forward.jump_forward import JumpForwardMap
from tests.bench.rows import PERCENTILES

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"bare pass by batch": (1, 4), "turn by batch": (1, 4), "bare pass by context": (128, 512),
         "masks of a batch": (1, 4), "compile by states": (30, 300), "mask by states": (30, 300),
         "hit by grammars": (1, 30)}


@pytest.fixture(scope="module")
def points(tiny_model: Path) -> Iterator[list[Point]]:
    """Two sizes of every curve, of every engine."""
    growth = Growth(EngineConfig(model=str(tiny_model), kv_pool_tokens=2048,
                                 limits=GrammarLimits(compile_timeout=120.0)), repeats=3)
    yield [growth.measure(GrowthCell(one.name, of, size)) for one in CURVES for of in one.of
           for size in SIZES[one.name]]
    torch.set_num_threads(1)


def counted(points: list[Point], curve: str, name: str) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for one in points:
        if one.curve == curve:
            found.setdefault(one.of, {})[one.size] = one.counts[name]
    return found


def test_a_pass_reads_its_weights_once_whatever_the_batch(points: list[Point]) -> None:
    weights = counted(points, "bare pass by batch", "weight_bytes")["model"]
    assert weights[1] == weights[4]
    assert counted(points, "bare pass by batch", "kv_bytes")["model"] == {1: 65_536 * 2, 4: 4 * 65_536 * 2}


def test_what_a_pass_reads_of_keys_and_values_is_linear_in_the_context(points: list[Point]) -> None:
    read = counted(points, "bare pass by context", "kv_bytes")["model"]
    assert read[512] == 4 * read[128]


def test_four_requests_take_as_many_turns_as_one(points: list[Point]) -> None:
    for of, turns in counted(points, "turn by batch", "turns").items():
        assert turns[1] == turns[4] == 4, of
        assert counted(points, "turn by batch", "tokens")[of] == {1: 4, 4: 16}
        assert counted(points, "turn by batch", "masks")[of] == ({1: 0, 4: 0} if of == "free" else {1: 4, 4: 16})


def test_a_mask_of_many_rows_is_as_many_times_larger(points: list[Point]) -> None:
    moved = counted(points, "masks of a batch", "mask_bytes")
    assert moved == {"stage1": {1: 49_152, 4: 4 * 49_152}, "stage5 xgrammar": {1: 6144, 4: 4 * 6144},
                     "stage5 llguidance": {1: 6144, 4: 4 * 6144}}


def test_the_grammars_have_the_states_they_are_named_by(points: list[Point]) -> None:
    for curve in ("compile by states", "mask by states"):
        for states in counted(points, curve, "states").values():
            assert 0.8 < states[30] / 30 < 1.2
            assert 0.8 < states[300] / 300 < 1.2


def test_the_largest_grammar_has_ten_thousand_states() -> None:
    sizes = {one.size for one in growth_plan(["compile by states"])}
    assert (min(sizes), max(sizes)) == (10, 10_000)
    assert states_of(record_regex(10_000)) == pytest.approx(10_000, rel=0.1)


def test_an_index_is_linear_in_its_states(tiny_model: Path) -> None:
    """Its work, its bytes and the map of its jumps: ten times the states, about ten times the cost."""
    tokenizer = Tokenizer.from_folder(tiny_model)
    context = StageContext(tokenizer.vocabulary, tokenizer, torch.device("cpu"),
                           GrammarLimits(compile_timeout=120.0))
    work, nbytes, edges = [], [], []
    with pytest.MonkeyPatch.context() as patched:
        spent = [0]
        before = Budget.work

        def counting(self: Budget, units: int = 1) -> None:
            spent[0] += units
            before(self, units)

        patched.setattr(Budget, "work", counting)
        for size in (100, 1000):
            spent[0] = 0
            fsm = fsm_builder(context)(record_regex(size))
            work.append(spent[0])
            nbytes.append(fsm.nbytes)
            edges.append(len(JumpForwardMap.of(fsm.dfa).edges))
    for small, large in (work, nbytes, edges):
        assert small < large < 12 * small


def test_a_cache_keeps_what_was_compiled_and_compiles_nothing_twice(points: list[Point]) -> None:
    assert counted(points, "hit by grammars", "builds") == {"stage5 llguidance": {1: 1, 30: 30}}
    assert counted(points, "hit by grammars", "grammars") == {"stage5 llguidance": {1: 1, 30: 30}}
    held = counted(points, "hit by grammars", "bytes")["stage5 llguidance"]
    assert held[1] < held[30] <= 31 * held[1]


def test_every_engine_lets_the_text_of_the_curve_through(points: list[Point]) -> None:
    """A walk that is refused is an error, so all masks were asked for."""
    for masks in counted(points, "mask by states", "masks").values():
        assert masks == {30: 256, 300: 256}
    assert len(record_text(300)) > 9 * len(record_text(30))


def test_the_power_is_that_of_the_last_decade() -> None:
    def curve(sizes: tuple[int, ...], cost: object) -> list[Point]:
        assert callable(cost)
        return [Point("c", "o", size, {"n": size * size}, {"min": cost(size)}) for size in sizes]

    assert power(curve((1, 10, 100, 1000), lambda size: 3.0 * size)) == pytest.approx(1)
    assert power(curve((1, 10, 100, 1000), lambda size: max(50.0, size**2 / 100))) == pytest.approx(2, abs=0.3)
    assert power(curve((1, 10), lambda size: 5.0)) == pytest.approx(0)
    assert power(curve((1, 10), lambda size: 5.0), "n") == pytest.approx(2)
    assert power(curve((7,), lambda size: 5.0)) is None
    assert power([]) is None


def test_points_go_into_a_ledger_a_table_and_pictures(points: list[Point], tmp_path: Path) -> None:
    ledger = Ledger.begin("cpu", {"dtype": "bf16", "pairs": "5"})
    ledger.growth = points
    data = json.loads(json.dumps(asdict(ledger)))
    jsonschema.validate(data, json.loads((ROOT / "benchmarks" / "ledger.schema.json").read_text(encoding="utf-8")))
    assert Ledger.of(data) == ledger
    assert len(ledger.keys) == len(points)

    lines = growth_table(ledger).splitlines()
    assert len(lines) == 2 + sum(len(one.of) for one in CURVES)
    assert again(ledger, points[0].key) == (
        "jumpforward bench run --row 'growth/bare pass by batch/model/1' --dtype bf16 --out row.json")

    drawn = write_plots(ledger, tmp_path)
    assert len(drawn) == len(CURVES)
    said = (tmp_path / "growth_compile_by_states.txt").read_text(encoding="utf-8")
    for engine in ("stage1_fsm", "outlines", "xgrammar", "llguidance"):
        assert f"{engine} 30: " in said


def test_what_grows_faster_than_its_size_is_listed_as_a_loss() -> None:
    ledger = Ledger.begin("cpu", {})
    ledger.growth = [Point("compile by states", of, size, {}, {"min": float(size**grows)})
                     for of, grows in (("outlines", 2), ("xgrammar", 1)) for size in (10, 100)]
    assert losses(ledger) == "- growth, compile by states, outlines: by the power 2.00 of its size, up to 100"
    assert [line.split(" | ")[-1] for line in growth_table(ledger).splitlines()[2:]] == ["no |", "yes |"]


def test_a_stopped_growth_run_goes_on(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measure(_self: Growth, cell: GrowthCell) -> Point:
        measured.append(cell.key)
        return Point(cell.curve, cell.of, cell.size, {}, {"min": 1.0} | PERCENTILES)

    monkeypatch.setattr(Growth, "measure", measure)
    cells = growth_plan(["hit by grammars"])
    config = EngineConfig(model=str(tiny_model), kv_pool_tokens=2048)
    for seconds, done in ((1e-9, 1), (None, 5)):
        ledger = Session(config, tmp_path / "g.json", pairs=1, quick=False, seconds=seconds).run(cells)
        assert len(ledger.growth) == done
    assert measured == [one.key for one in cells]
    assert ledger.unfinished == []
