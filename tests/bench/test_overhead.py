"""What the engine adds to a pass is measured on what it says it is; times are never asserted."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import beside_transformers
from benchmarks.bare_pass import BarePass
from benchmarks.beside_transformers import BesideTransformers
from benchmarks.ledger import Interval
from benchmarks.overhead import Overhead, main, merged, table
from benchmarks.paired import OverheadRow
from benchmarks.pass_sizes import bare_seconds, pass_sizes
from benchmarks.peer_loops import Answer
from benchmarks.peer_transformers import TransformersLoop
from benchmarks.recorded_passes import RecordedPasses
from benchmarks.serving import Run, serve, serve_free
from benchmarks.workloads import Question
from shared_runtime.config import EngineConfig
from shared_runtime.forward_batch import ForwardMode

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(tiny_model: Path) -> Overhead:
    return Overhead(EngineConfig(model=str(tiny_model), kv_pool_tokens=4096), pairs=2)


def test_the_passes_run_again_are_those_of_the_decode_turns_and_change_nothing(bench: Overhead) -> None:
    with bench.engine(5, "xgrammar") as engine:
        workload = bench.workloads["ship_card"]
        first = serve(engine, workload, 2)
        passes = RecordedPasses(engine)
        assert passes.turns(lambda: serve(engine, workload, 2)) > 0
        assert all(one.mode is ForwardMode.DECODE for one in passes._batches)
        assert len(passes._batches) == max(first.lengths) - 1  # the prompts' pass yields the first token
        pool = engine.parts.memory.pool
        before = [keys.clone() for keys in pool.k]
        assert passes.bare() > 0
        assert all((was - now).abs().max() < 1e-4 for was, now in zip(before, pool.k, strict=True))
        engine.check_integrity()


@pytest.mark.slow
def test_every_part_has_its_rows(bench: Overhead) -> None:
    rows = [*bench.loop([1, 2]), *bench.constrained([1], ["xgrammar"], ["json_five_fields", "card_regex"]),
            *bench.overlap([1]), *bench.jump([1, 2], [4])]
    assert [(row.part, row.what, row.batch) for row in rows] == [
        ("loop", "overlap off", 1), ("loop", "overlap off", 2), ("loop", "overlap on", 1), ("loop", "overlap on", 2),
        ("constrained", "stage 5 xgrammar, json_five_fields", 1), ("constrained", "stage 5 xgrammar, card_regex", 1),
        ("constrained", "stage 1 fsm, card_regex", 1), ("overlap", "on by off, free", 1),
        ("overlap", "on by off, xgrammar", 1), ("jump", "the card regex", 1), ("jump", "literals of 4", 1),
        ("jump", "literals of 4", 2), ("jump", "literals of 4, out of step", 1),
        ("jump", "literals of 4, out of step", 2)]
    assert all(row.ratio.pairs == 2 and row.ratio.median > 0 for row in rows)
    assert [row.aim for row in rows if row.part == "jump"] == [0.6, *[None] * 4]


def test_the_passes_of_a_run_are_taken_with_what_they_read_and_score(bench: Overhead) -> None:
    workload = replace(bench.workloads["ship_card"], max_new_tokens=64)
    for mode in ("none", "draft", "force"):
        with bench.engine(5, "xgrammar", jump=mode, trace=True) as engine:
            run = serve(engine, workload, 1)
        sizes = pass_sizes(run)
        assert len(sizes) == run.results[0].metrics.forward_passes
        assert [one.prompt for one in sizes] == [True] + [False] * (len(sizes) - 1)
        assert sizes[0].fed >= len(run.results[0].prompt_ids)
        fed, scored = max(one.fed for one in sizes[1:]), max(one.scored for one in sizes[1:])
        assert (fed > 1, scored > 1) == {"none": (False, False), "draft": (True, True), "force": (True, False)}[mode]
    with bench.engine(5, "xgrammar") as engine:
        with BarePass(engine, 2, 16, 5, 3) as one:
            assert one().shape[0] == 6
        assert bare_seconds(engine, sizes) > 0
        engine.check_integrity()


@pytest.mark.slow
def test_free_answers_of_transformers_are_held_together_and_ours_are_not(
        bench: Overhead, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    served: list[list[int]] = []
    asked: list[tuple[int, int]] = []

    def ours(*given: Any) -> Run:
        served.append(given[-1])
        return serve_free(*given)

    class Recording(TransformersLoop):
        def answer(self, wave: Sequence[Question], most: int, *, least: int = 1) -> list[Answer]:
            found = super().answer(wave, most, least=least)
            asked.append((len({one.prompt for one in wave}), found[0].passes))
            return found

    monkeypatch.setattr(beside_transformers, "serve_free", ours)
    monkeypatch.setattr(beside_transformers, "TransformersLoop", Recording)
    monkeypatch.setattr(beside_transformers, "LONGEST", 8)
    beside = BesideTransformers(bench.config, pairs=1)
    rows = list(beside.generate([1, 4]))
    assert [(row.batch, row.aim, row.ratio.pairs) for row in rows] == [(1, 1.4, 1), (4, None, 1)]
    assert served == [[32]] * 2 + [[2, 4, 6, 8]] * 2  # once to warm up
    assert asked == [(1, 32)] * 2 + [(4, 8)] * 2


def test_a_file_keeps_what_is_not_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = OverheadRow("loop", "overlap off", "bf16", 1, 1, 2.0, 1.0, Interval(2.0, 2.0, 2.0, 5), 1.05)
    other = OverheadRow("loop", "overlap off", "bf16", 1, 16, 3.0, 1.0, Interval(3.0, 3.0, 3.0, 5))
    path = tmp_path / "overhead.json"
    path.write_text(json.dumps(merged(path, [one, other])))
    again = OverheadRow("loop", "overlap off", "bf16", 1, 1, 4.0, 1.0, Interval(4.0, 3.5, 4.5, 5), 1.05)
    path.write_text(json.dumps(merged(path, [again])))
    rows = json.loads(path.read_text())["rows"]
    assert [row["ms"] for row in rows] == [4.0, 3.0]
    assert main(["--table", str(path)]) == 0
    assert capsys.readouterr().out == table(rows) + "\n"
    assert "| 4.000 [3.500, 4.500] | 1.05 |" in table(rows)


def test_the_table_in_the_docs_is_that_of_the_file() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- overhead: (\S+) -->\n\n(.*?)\n\n<!-- end -->", page, re.DOTALL)
    assert found is not None
    assert found[2] == table(json.loads((ROOT / found[1]).read_text(encoding="utf-8"))["rows"])


def test_an_unknown_part_and_a_clock_that_says_nothing_are_usage_errors() -> None:
    for wrong in (["speed"], ["overlap", "--clock", "cpu"], ["loop", "--threads", "2", "--clock", "cpu"]):
        with pytest.raises(SystemExit) as caught:
            main(wrong)
        assert caught.value.code == 2
