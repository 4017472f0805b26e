"""`jumpforward bench`: measure the stages and their peers, and make tables and pictures of what was measured."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jumpforward.console import ProgressLine, visible
from jumpforward.exit_codes import OK, REQUEST_ERROR
from jumpforward.help import Command, Group, examples
from jumpforward.option_groups import expand_groups
from jumpforward.options import EngineOptions
from shared_runtime.errors import ConfigError

if TYPE_CHECKING:
    from benchmarks.workloads import Workload

_QUICK_SECONDS = 120.0
_ROOT = Path(__file__).resolve().parents[1]
RESULTS = _ROOT / "benchmarks" / "results"

bench_app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode="rich", epilog=examples(
    "bench run --quick --out quick.json", "bench report quick.json", "bench workloads"))


@bench_app.command("run", cls=Command, epilog=examples("bench run --quick --out quick.json"))
@expand_groups
def run(
    engine: EngineOptions,
    quick: Annotated[bool, typer.Option(
        "--quick", help="A few rows in about two minutes, instead of everything in hours.")] = False,
    workload: Annotated[list[str] | None, typer.Option(
        "--workload", metavar="NAME", help="Only this one; may be repeated.", show_default="all")] = None,
    stage: Annotated[list[int] | None, typer.Option(
        "--stage", metavar="N", help="Only this generation; may be repeated.", show_default="all")] = None,
    batch: Annotated[list[int] | None, typer.Option(
        "--batch", metavar="N", help="Only this many requests at a time; may be repeated.",
        show_default="the workload's own")] = None,
    pairs: Annotated[int | None, typer.Option(
        "--pairs", metavar="N", help="Timed pairs of each row, constrained and free in turn.",
        show_default="5; 1 with --quick")] = None,
    seconds: Annotated[float | None, typer.Option(
        "--seconds", metavar="S", help="Begin no row after so many; the same command goes on later.",
        show_default="no limit; 120 with --quick")] = None,
    peers: Annotated[bool, typer.Option(
        "--peers/--no-peers", metavar="", help="transformers, with each library's logits processor.")] = True,
    masks: Annotated[bool, typer.Option(
        "--masks/--no-masks", metavar="", help="The mask engines alone, over a slice of schemas.")] = True,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE.json", help="The ledger; the SHA256SUMS beside it is written anew.",
        show_default="benchmarks/results/quick.json or full.json")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew where there is a ledger.")] = False,
) -> int:
    """Measure into a ledger file. Stopped at any time, the same command goes on where it stopped."""
    from dataclasses import replace

    from benchmarks.plan import plan
    from benchmarks.results import write_sums
    from benchmarks.session import Session

    for name, value in (("--pairs", pairs), ("--seconds", seconds)):
        if value is not None and value <= 0:
            raise ConfigError(f"{value} is not above 0", where=name)
    chosen = _workloads(workload)
    if batch:
        chosen = [replace(one, batches=tuple(batch), quick=tuple(batch)) for one in chosen]
    elif workload:  # also those that a quick run would leave out
        chosen = [replace(one, quick=one.quick or (1,)) for one in chosen]
    cells = plan(chosen, quick=quick, stages=stage or (), peers=peers, engines=masks)
    path = out or RESULTS / ("quick.json" if quick else "full.json")
    limit = seconds or (_QUICK_SECONDS if quick else None)
    progress = ProgressLine()
    session = Session(config=replace(engine.config(5), kv_pool_tokens=32_768), out=path,
                      pairs=pairs or (1 if quick else 5), quick=quick, seconds=limit, fresh=fresh, progress=progress)
    started = time.monotonic()
    try:
        ledger = session.run(cells)
    finally:
        progress.clear()
    write_sums(path.parent)
    print(f"{len(ledger.keys)} rows in {path}, {len(ledger.unfinished)} not measured yet, after "
          f"{time.monotonic() - started:.0f} s")
    print(f"jumpforward bench report {path}")
    return OK


@bench_app.command("report", cls=Command, epilog=examples("bench report --out site/bench"))
def report(
    ledger: Annotated[Path | None, typer.Argument(
        metavar="[FILE.json]", help="A ledger.", show_default="the full one, else the quick one")] = None,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FOLDER", help="Write report.md and SVG pictures there instead of printing.")] = None,
    short: Annotated[bool, typer.Option("--short", help="Print one table, one request at a time.")] = False,
) -> int:
    """Make tables, and with --out pictures with their text alternatives, from a ledger."""
    from benchmarks.report import report as make_report
    from benchmarks.report import summary
    from benchmarks.results import read_ledger

    found = read_ledger(ledger or _newest())
    text = summary(found) + "\n" if short else make_report(found)
    if out is None:
        sys.stdout.write(visible(text))
        return OK
    from benchmarks.plots import write_plots

    for path in write_plots(found, out):
        print(path)
    (out / "report.md").write_text(make_report(found), encoding="utf-8")
    print(out / "report.md")
    return OK


@bench_app.command("verify", cls=Command)
def verify(folder: Annotated[Path, typer.Argument(
        metavar="[FOLDER]", help="Of ledgers.", show_default="benchmarks/results")] = RESULTS) -> int:
    """Check ledgers against their checksums, their schema and themselves; exit code 1 when something is wrong."""
    from benchmarks.results import verify as find_faults

    faults = find_faults(folder)
    for one in faults:
        print(visible(one))
    print(f"{len(faults)} faults in {folder}")
    return REQUEST_ERROR if faults else OK


@bench_app.command("workloads", cls=Command)
def workloads() -> int:
    """List the workloads: why each is there, and what misleads in its result."""
    for one in _workloads(None):
        print(f"{one.name}  ({len(one.questions)} requests, batch {', '.join(map(str, one.batches))})")
        print(f"  why   {one.why}\n  trap  {one.trap}")
    return OK


def _workloads(names: list[str] | None) -> list[Workload]:
    from benchmarks.workloads import all_workloads

    known = {one.name: one for one in all_workloads()}
    for name in names or ():
        if name not in known:
            raise ConfigError(f"there is no workload {name!r}", where="--workload",
                              fix=f"use one of: {', '.join(sorted(known))}")
    return [one for one in known.values() if not names or one.name in names]


def _newest() -> Path:
    for name in ("full.json", "quick.json"):
        if (RESULTS / name).exists():
            return RESULTS / name
    raise ConfigError("there is no ledger yet", where=str(RESULTS), fix="run: jumpforward bench run --quick")
