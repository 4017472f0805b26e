"""What the report says of a ledger: every row, what was slower too, and pictures with their text."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.ledger import EngineRow, Interval, Ledger, Measurement
from benchmarks.plan import cells_named
from benchmarks.plots import write_plots
from benchmarks.report import (
    again,
    counts_table,
    interval,
    label,
    peers_table,
    percentiles_table,
    report,
    table,
    times_table,
)
from benchmarks.results import read_ledger, write_sums
from benchmarks.session import Session
from benchmarks.workloads import all_workloads
from jumpforward.cli import main
from scripts.make_performance import PAGE, filled
from tests.bench.rows import PERCENTILES, row, row_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger.begin("cpu", {"dtype": "fp32"})
    made.commit = "0123456789abcdef" * 2 + "01234567"
    made.measurements = [
        row(5, "plain", ratio=Interval(1.25, 1.1, 1.4, 7)),
        row(5, "force", ratio=Interval(0.4, 0.3, 0.5, 7), steps=20, sampled=20, forced=20),
        row(1, "plain", ratio=Interval(1.1, 0.9, 1.2, 7)),
        Measurement("light", 0, "xgrammar", "transformers", "fp32", 1, False, {"tokens": 40, "steps": 40}, {}, 60.0,
                    16.0, ratios={"over_stage5_plain": Interval(0.8, 0.7, 0.9, 5),
                                  "over_stage5_force+draft": Interval(3.0, 2.5, 3.5, 5)}),
    ]
    counts = {"schemas": 3, "ok": 1, "refused": 1, "wrong": 1, "tokens": 9, "masks": 9}
    made.engines = [EngineRow("xgrammar", counts, PERCENTILES, PERCENTILES, {"tree": "it never ends"},
                              {"labels": "lets through {}"})]
    made.unfinished = ["card_regex/5/xgrammar/plain/64"]
    made.notes = ["load when it began: 8.0 on 2 cores; the machine was busy"]
    return made


def cells(text: str) -> list[list[str]]:
    return [[one.strip() for one in line.strip("|").split(" | ")] for line in text.splitlines()]


def test_the_report_tells_every_row_its_reason_and_its_trap(ledger: Ledger) -> None:
    text = report(ledger)
    for expected in ("## light", "Why: The losing case", "Trap: The allowed mass is nearly 1", "5 xgrammar",
                     "5+force xgrammar", "transformers + xgrammar", "0123456789ab", "dtype fp32", "79.6 %",
                     "the machine was busy", "card_regex/5/xgrammar/plain/64", "tree: it never ends",
                     "labels: lets through {}"):
        assert expected in text, expected


def test_what_was_slower_is_listed_worst_first(ledger: Ledger) -> None:
    losses = report(ledger).split("## Where it loses\n\n")[1].split("\n\n")[0].splitlines()
    assert losses == [
        "- light, transformers + xgrammar, batch 1: stage5_plain is 1.25x slower than the peer",
        "- light, 5 xgrammar, batch 1: 1.25x slower than free decoding",
        "- light, 1 xgrammar, batch 1: 1.10x slower than free decoding, not certain",
    ]
    ledger.measurements = [ledger.measurements[1]]
    assert "No ratio is above 1.03." in report(ledger)
    counts = dict.fromkeys(("ok", "refused", "wrong", "masks"), 1)
    slow, fast = {"p50": 8.0, "p99.9": 8.0}, {"p50": 2.0, "p99.9": 9.0}
    ledger.engines = [EngineRow("stage1_fsm", counts, slow, slow), EngineRow("outlines", counts, fast, fast)]
    assert report(ledger).split("## Where it loses\n\n")[1].split("\n\n")[0].splitlines() == [
        "- mask engines, stage1_fsm, time to first mask, p50: 4.00x that of outlines",
        "- mask engines, stage1_fsm, time between masks, p50: 4.00x that of outlines"]


def test_the_share_of_ids_and_the_share_of_time_are_two_figures(ledger: Ledger) -> None:
    text = report(ledger)
    head = next(line for line in text.splitlines() if "ids re-encoded" in line)
    assert "time spent on it" in head
    assert "| 25.0 % | 4.0 % |" in text


def test_tables(ledger: Ledger) -> None:
    own = ledger.measurements[:3]
    assert cells(counts_table(own)) == [
        ["row", "batch", "tokens", "steps", "sampled", "forced", "masks"], ["---", *["---:"] * 6],
        ["5 xgrammar", "1", "40", "40", "40", "0", "40"], ["5+force xgrammar", "1", "40", "20", "20", "20", "40"],
        ["1 xgrammar", "1", "40", "40", "40", "0", "40"]]
    first = dict(zip(*(cells(times_table(own))[index] for index in (0, 2)), strict=True))
    assert first == {"row": "5 xgrammar", "batch": "1", "ms/token": "50.0", "ms/byte": "12.3",
                     "over free": "1.25 [1.10, 1.40]", "free ms/token": "40.0", "bare pass ms": "38.0",
                     "roofline ms": "30.0", "TTFT ms": "1.00", "compile ms": "-", "mask ms": "-",
                     "forced share": "50.0 %", "bound": "2.00"}
    known = "1.00 / 2.00 / 3.00 / 4.00"
    assert cells(percentiles_table(own))[2] == ["5 xgrammar", "1", known, known, "-", "-", "-", known]
    assert "over stage5 plain | over stage5 force+draft" in peers_table(ledger.measurements[3:])
    assert table(("a",), [("x|y",)]) == "| a |\n| --- |\n| x\\|y |"


def test_one_pair_has_no_interval() -> None:
    assert interval(Interval(1.5, 1.5, 1.5, 1)) == "1.50 (1 pair)"
    assert interval(None) == "-"


def test_labels(ledger: Ledger) -> None:
    assert [label(one) for one in ledger.measurements] == ["5 xgrammar", "5+force xgrammar", "1 xgrammar",
                                                           "transformers + xgrammar"]


def test_pictures_carry_their_text(ledger: Ledger, tmp_path: Path) -> None:
    written = write_plots(ledger, tmp_path)
    assert [one.name for one in written] == ["passes.svg", "over_free.svg", "mask_engines.svg"]
    for path in written:
        svg = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert svg.get("role") == "img"
        title = svg.find("{http://www.w3.org/2000/svg}title")
        assert title is not None
        assert title.text == path.with_suffix(".txt").read_text(encoding="utf-8").strip()
    assert "light 5+force xgrammar 50.0" in (tmp_path / "passes.txt").read_text(encoding="utf-8")
    assert "1.25 (1.1 to 1.4)" in (tmp_path / "over_free.txt").read_text(encoding="utf-8")


def test_what_has_no_numbers_is_not_drawn(ledger: Ledger, tmp_path: Path) -> None:
    ledger.engines = []
    assert "mask_engines.svg" not in {one.name for one in write_plots(ledger, tmp_path)}


# the command

def test_the_command_makes_a_report(ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.write(tmp_path / "a.json")
    assert main(["bench", "report", str(tmp_path / "a.json")]) == 0
    assert capsys.readouterr().out == report(ledger)
    assert main(["bench", "report", str(tmp_path / "a.json"), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [str(tmp_path / "out" / name) for name in ("passes.svg", "over_free.svg", "mask_engines.svg",
                                                              "report.md")]
    assert (tmp_path / "out" / "report.md").read_text(encoding="utf-8") == report(ledger)


def test_the_command_verifies(ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.write(tmp_path / "a.json")
    write_sums(tmp_path)
    assert main(["bench", "verify", str(tmp_path)]) == 0
    (tmp_path / "a.json").write_text("[]", encoding="utf-8")
    assert main(["bench", "verify", str(tmp_path)]) == 1
    assert "a.json: its checksum is another one" in capsys.readouterr().out


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, expected in ((["run", "--workload", "nonsense"], "there is no workload 'nonsense'"),
                            (["run", "--pairs", "0"], "0 is not above 0"),
                            (["report", str(tmp_path / "none.json")], "cannot read the ledger"),
                            (["verify", str(tmp_path)], "there is no SHA256SUMS")):
        assert main(["bench", *words]) == 2
        assert expected in capsys.readouterr().err


def test_the_command_lists_the_workloads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "workloads"]) == 0
    said = capsys.readouterr().out
    for name in ("why ", "trap"):
        assert len(re.findall(f"^  {name}  .{{20}}", said, re.MULTILINE)) == len(all_workloads())


def test_the_command_runs_goes_on_and_lists_the_checksum(tiny_model: Path, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("benchmarks.measuring.Lab.measure", lambda _lab, cell: row_of(cell))
    monkeypatch.setattr("benchmarks.session.memory_bandwidth", lambda *_: 1e10)
    out = tmp_path / "quick.json"
    words = ["bench", "run", "--quick", "--workload", "choice", "--stage", "5", "--no-peers", "--no-masks", "--model",
             str(tiny_model), "--out", str(out)]
    assert main([*words, "--seconds", "0.000001"]) == 0
    assert "1 rows in" in capsys.readouterr().out
    assert main(words) == 0
    assert "4 rows in" in capsys.readouterr().out
    assert read_ledger(out).unfinished == []
    assert main(["bench", "verify", str(tmp_path)]) == 0


def test_the_short_table_has_a_line_a_row(ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.write(tmp_path / "a.json")
    assert main(["bench", "report", "--short", str(tmp_path / "a.json")]) == 0
    lines = cells(capsys.readouterr().out)
    assert lines[2] == ["light", "5 xgrammar", "40", "40", "1.25 [1.10, 1.40] of free", "2.00", "79.6 %", "-"]
    assert lines[5] == ["light", "transformers + xgrammar", "40", "40", "0.80 [0.70, 0.90] of ours", "-", "-", "-"]
    assert len(lines) == 2 + len(ledger.measurements)


def test_the_tables_in_the_docs_are_those_of_the_ledgers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- (\w+): \S+ -->", page)) >= {"table", "losses", "masks", "growth"}
    assert filled(page) == page, "make docs-data"
    (tmp_path / "page.md").write_text(page.replace("| stage1_fsm | 33 |", "| stage1_fsm | 34 |"), encoding="utf-8")
    assert filled((tmp_path / "page.md").read_text(encoding="utf-8")) == page


def test_the_commands_of_the_docs_run(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `docs/performance.md`, in order, in an empty folder; only the measuring itself is left out."""
    def measured(self: Session, _cells: object) -> Ledger:
        assert (self.quick, self.pairs, self.seconds) in ((True, 1, 180.0), (False, 1, None), (False, 5, None))
        ledger.write(self.out)
        return ledger

    monkeypatch.setattr(Session, "run", measured)
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    commands += re.findall(r"`(jumpforward bench (?:workloads|verify|run --row \S+))`", page)
    commands = [line for line in commands if line.startswith("jumpforward bench ")]
    assert len(commands) >= 7
    for line in commands:
        words = [*line.split()[1:], *(["--out", "row.json"] if "--row" in line else [])]
        assert main([*words, *([str(tmp_path)] if line.endswith("verify") else [])]) == 0


def test_a_report_names_the_command_of_every_row(ledger: Ledger) -> None:
    text = report(ledger)
    ledger.settings = {"dtype": "bf16", "threads": "2", "pairs": "5", "exact": "True", "model": "a b"}
    for one in ledger.measurements:
        assert f"`jumpforward bench run --row {one.key} --out row.json`" in text
        assert again(ledger, one.key) == (f"jumpforward bench run --row {one.key} --model 'a b' --dtype bf16 "
                                          "--threads 2 --exact --out row.json")
        if one.stage == 5:
            assert [cell.key for cell in cells_named([one.key])] == [one.key]


def test_what_was_left_out_for_one_reason_is_one_note(ledger: Ledger) -> None:
    ledger.notes = [f"left out: {name}/0/-/llama.cpp/1: not there: (make peers)" for name in "ab"]
    ledger.notes += ["left out: c/0/-/x/1: another", "busy"]
    assert report(ledger).split("## Notes\n\n")[1].split("\n\n")[0].splitlines() == [
        "- busy", "- left out: 2 rows: not there: (make peers)", "- left out: c/0/-/x/1: another"]


def test_the_ledgers_that_are_shipped_are_verified() -> None:
    from jumpforward.bench_command import RESULTS

    assert list(RESULTS.glob("*.json"))
    assert main(["bench", "verify"]) == 0
