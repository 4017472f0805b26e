"""`jumpforward bench`: measure the stages and their peers, and make tables and pictures of what was measured."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
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
    from benchmarks.plan import AnyCell
    from benchmarks.session import Session
    from benchmarks.workloads import Workload

_QUICK_SECONDS = 180.0
_POOL = 32_768
"""Tokens of KV: 64 requests of 512, or one of 4,096 with room."""

_ROOT = Path(__file__).resolve().parents[1]
RESULTS = _ROOT / "benchmarks" / "results"

bench_app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode="rich", epilog=examples(
    "bench run --quick --out quick.json", "bench report quick.json", "bench workloads"))


@bench_app.command("run", cls=Command, epilog=examples("bench run --quick --out quick.json"))
@expand_groups
def run(
    engine: EngineOptions,
    quick: Annotated[bool, typer.Option(
        "--quick", help="A few rows in two to three minutes, instead of everything in hours.")] = False,
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
        show_default="no limit; 180 with --quick")] = None,
    peers: Annotated[bool, typer.Option(
        "--peers/--no-peers", metavar="", help="transformers, with each library's logits processor.")] = True,
    masks: Annotated[bool, typer.Option(
        "--masks/--no-masks", metavar="", help="The mask engines alone, over a slice of schemas.")] = True,
    row: Annotated[list[str] | None, typer.Option(
        "--row", metavar="KEY", help="Only this row, as a report names it; may be repeated.",
        show_default="what the other options say")] = None,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE.json", help="The ledger; the SHA256SUMS beside it is written anew.",
        show_default="benchmarks/results/quick.json or full.json")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew where there is a ledger.")] = False,
    note: Annotated[str | None, typer.Option(
        "--note", metavar="TEXT", help="What a reader of the ledger must know, of the machine above all.",
        show_default="none")] = None,
) -> int:
    """Measure into a ledger file. Stopped at any time, the same command goes on where it stopped."""
    from dataclasses import replace

    from benchmarks.plan import cells_named, plan
    from benchmarks.session import Session

    if pairs is not None and pairs <= 0:
        raise ConfigError(f"{pairs} is not above 0", where="--pairs")
    chosen = _workloads(workload)
    if batch:
        chosen = [replace(one, batches=tuple(batch), quick=tuple(batch)) for one in chosen]
    elif workload:  # also those that a quick run would leave out
        chosen = [replace(one, quick=one.quick or (1,)) for one in chosen]
    cells = cells_named(row) if row else plan(chosen, quick=quick, stages=stage or (), peers=peers, engines=masks)
    path = out or RESULTS / ("quick.json" if quick else "full.json")
    progress = ProgressLine()
    limit = _limit(seconds) or (_QUICK_SECONDS if quick else None)
    return _measure(Session(
        config=replace(engine.config(5), kv_pool_tokens=_POOL), out=path, pairs=pairs or (1 if quick else 5),
        quick=quick, seconds=limit, fresh=fresh, note=note, progress=progress), cells, progress)


@bench_app.command("growth", cls=Command, epilog=examples("bench growth --most 1000 --out growth.json"))
@expand_groups
def growth(
    engine: EngineOptions,
    curve: Annotated[list[str] | None, typer.Option(
        "--curve", metavar="NAME", help="Only this one; may be repeated.", show_default="all")] = None,
    most: Annotated[int | None, typer.Option(
        "--most", metavar="N", help="No point beyond this size.", show_default="each curve's own")] = None,
    seconds: Annotated[float | None, typer.Option(
        "--seconds", metavar="S", help="Begin no point after so many; the same command goes on later.",
        show_default="no limit")] = None,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE.json", help="The ledger; the SHA256SUMS beside it is written anew.",
        show_default="benchmarks/results/growth.json")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew where there is a ledger.")] = False,
    note: Annotated[str | None, typer.Option(
        "--note", metavar="TEXT", help="What a reader of the ledger must know, of the machine above all.",
        show_default="none")] = None,
) -> int:
    """Measure how costs grow: with the batch, the context, a grammar's states, the grammars in a cache."""
    from dataclasses import replace

    from benchmarks.growth import CURVES, growth_plan
    from benchmarks.session import Session

    known = [one.name for one in CURVES]
    for name in curve or ():
        if name not in known:
            raise ConfigError(f"there is no curve {name!r}", where="--curve", fix=f"use one of: {', '.join(known)}")
    progress = ProgressLine()
    return _measure(Session(
        config=replace(engine.config(5), kv_pool_tokens=_POOL), out=out or RESULTS / "growth.json", pairs=1,
        quick=False, seconds=_limit(seconds), fresh=fresh, note=note, progress=progress),
        growth_plan(curve or (), most), progress)


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


def _measure(session: Session, cells: Sequence[AnyCell], progress: ProgressLine) -> int:
    from benchmarks.results import write_sums

    started = time.monotonic()
    try:
        ledger = session.run(cells)
    finally:
        progress.clear()
    write_sums(session.out.parent)
    print(f"{len(ledger.keys)} rows in {session.out}, {len(ledger.unfinished)} not measured yet, after "
          f"{time.monotonic() - started:.0f} s")
    print(f"jumpforward bench report {session.out}")
    return OK


def _limit(seconds: float | None) -> float | None:
    if seconds is not None and seconds <= 0:
        raise ConfigError(f"{seconds} is not above 0", where="--seconds")
    return seconds


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
