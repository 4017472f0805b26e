"""The benchmark pages show what the ledgers hold, whatever that is, and every row has a command that can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from benchmarks import report
from benchmarks.curve import Point
from benchmarks.ledger import Interval
from benchmarks.plan import cells_named
from benchmarks.results import FOLDER, read_ledger
from benchmarks.workloads import all_workloads
from scripts.site import ledger_pieces
from scripts.site.assemble import page_text
from scripts.site.page import DOCS, Page, SiteError

LEDGERS = {path.name: read_ledger(path) for path in sorted(FOLDER.glob("*.json"))}
HERE = Page(PurePosixPath("benchmarks/5.md"))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty folder of ledgers that the pages read instead."""
    monkeypatch.setattr(ledger_pieces, "FOLDER", tmp_path)
    ledger_pieces.ledgers.cache_clear()
    yield tmp_path
    ledger_pieces.ledgers.cache_clear()


def page(text: str) -> str:
    return page_text(text, HERE, DOCS / "en/benchmarks/5.md")


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_every_row_of_every_ledger_is_on_its_page(pages: Path) -> None:
    for ledger in LEDGERS.values():
        for one in ledger.measurements:
            name = str(one.stage) if one.stage else "peers"
            found = cells((pages / f"benchmarks/{name}.md").read_text(encoding="utf-8"))
            row = [report.label(one), str(one.batch), str(one.counts["tokens"])]
            assert row in [line[:3] for line in found], one.key
        for engine in ledger.engines:
            found = cells((pages / "benchmarks/engines.md").read_text(encoding="utf-8"))
            assert any(row[0] == engine.engine and row[1] == str(engine.counts["ok"]) for row in found), engine.key


def test_denominators_losing_cases_and_traps_are_there(pages: Path) -> None:
    for stage in {one.stage for ledger in LEDGERS.values() for one in ledger.measurements if one.stage}:
        text = (pages / f"benchmarks/{stage}.md").read_text(encoding="utf-8")
        heads = [row for row in cells(text) if "over free" in row]
        assert heads
        assert all({"free ms/token", "bare pass ms", "roofline ms", "bound"} <= set(row) for row in heads)
    index = (pages / "benchmarks/index.md").read_text(encoding="utf-8")
    for name, ledger in LEDGERS.items():
        assert f"### {name}" in index
        assert report.losses(ledger) in index
    for workload in all_workloads():
        assert workload.trap.replace("|", "\\|") in index


def test_what_is_drawn_is_written_beside_it(pages: Path) -> None:
    for path in (pages / "benchmarks").glob("*.md"):
        for figure in re.findall(r'<figure class="chart"[^>]*>.*?</figure>', path.read_text(encoding="utf-8")):
            assert re.search(r"<figcaption>\w.+</figcaption>", figure)
            labels, values = (re.findall(rf'<span class="{name}">(.*?)</span>', figure) for name in ("label", "value"))
            assert len(labels) == len(values) == figure.count('aria-hidden="true"') > 0
            assert all(values)


def test_every_row_has_the_command_that_measures_it_again(pages: Path) -> None:
    """`--row` takes the key of a row, and plans exactly that row."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (pages / "benchmarks").glob("*.md"))
    found = {line.strip() for line in re.findall(r"^ *jumpforward bench run --row .*$", text, re.MULTILINE)}
    keys = [shlex.split(line)[4] for line in found]
    measured = {key for ledger in LEDGERS.values() if "bench" in ledger.command
                for key in ledger.keys if not key.startswith("growth/")}
    assert measured <= set(keys)
    assert sorted(cell.key for cell in cells_named(keys)) == sorted(keys)


def test_a_ledger_of_another_program_is_made_again_by_that_program(shown: Path) -> None:
    ledger = next(one for one in LEDGERS.values() if any(row.stage == 5 for row in one.measurements))
    replace(ledger, command=["python", "gpu_check.py", "--out", "x.json"]).write(shown / "x.json")
    text = page("{{ ledger-stage 5 }}")
    assert "    gpu_check.py --out x.json\n" in text
    assert "--row" not in text


def test_curves_are_shown_once_a_ledger_has_them(shown: Path) -> None:
    ledger = next(iter(LEDGERS.values()))
    points = [Point("compile by states", "xgrammar", size, {}, {"min": size**1.5}) for size in (10, 100, 1000)]
    replace(ledger, measurements=[], engines=[], growth=[]).write(shown / "x.json")
    assert page("{{ ledger-growth }}") == ""
    ledger_pieces.ledgers.cache_clear()
    replace(ledger, measurements=[], engines=[], growth=points).write(shown / "x.json")
    assert '<span class="value">1.50</span>' in page("{{ ledger-growth }}")
    assert "growth, compile by states, xgrammar: by the power 1.50" in page("{{ ledger-losses }}")
    assert page("{{ ledger-losses 5 }}") == "", "curves belong to no stage"


def test_another_ledger_gives_other_pages(shown: Path) -> None:
    ledger = next(one for one in LEDGERS.values() if any(row.stage == 5 for row in one.measurements))
    row = next(one for one in ledger.measurements if one.stage == 5)
    other = replace(row, mode="overlap", batch=7, counts=row.counts | {"tokens": 54_321, "sampled": 54_321},
                    ratios={"over_free": Interval(1.75, 1.5, 2.0, 5)})
    settings = ledger.settings | {"dtype": "bf16"}
    replace(ledger, measurements=[other], engines=[], settings=settings).write(shown / "x.json")
    text = page("{{ ledger-stage 5 }}")
    assert "## From x.json" in text
    assert ["5+overlap xgrammar", "7", "54321"] in [one[:3] for one in cells(text)]
    assert "1.75 [1.50, 2.00]" in text
    assert 'class="range" style="left:75.0%;width:25.0%"' in text
    assert re.search(r"--row \w+/5/xgrammar/overlap/7 .*--dtype bf16 ", text)
    assert "batch 7: 1.75x slower than free decoding" in page("{{ ledger-losses 5 }}")
    assert page("{{ ledger-worst 5 }}") == "No row is slower than free decoding.", "seven at a time are not shown there"


@pytest.mark.parametrize("piece", ["ledger 5", "ledger-stage 5", "ledger-peers", "ledger-engines", "ledger-overview"])
def test_without_a_ledger_the_build_fails(piece: str, shown: Path) -> None:
    with pytest.raises(SiteError, match="no ledger"):
        page(f"{{{{ {piece} }}}}")
