"""Pieces made from the ledgers of `benchmarks/results`: whatever stands there is what the pages show.

The tables are those of `jumpforward bench report`; the pictures are drawn here, from the same rows, so that they follow
the page's colours. A piece names every ledger it takes a row from, and an empty folder is an error, not an empty page.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape

import stages
from benchmarks import report
from benchmarks.curve import power
from benchmarks.growth import CURVES
from benchmarks.ledger import Ledger, Measurement
from benchmarks.results import FOLDER, read_ledger
from benchmarks.workloads import all_workloads
from scripts.site.charts import Bar, bars
from scripts.site.page import Page, SiteError

_WORST = 5
"""So many losing rows on a stage's page."""


@functools.cache
def ledgers() -> tuple[tuple[str, Ledger], ...]:
    """Every ledger, by the name of its file.

    Raises:
        SiteError: there is none.
    """
    found = tuple((path.name, read_ledger(path)) for path in sorted(FOLDER.glob("*.json")))
    if not found:
        raise SiteError("benchmarks/results has no ledger")
    return found


def sources(page: Page) -> str:
    """Where the numbers come from: each ledger, its command, commit, machine and notes."""
    parts = []
    for name, one in ledgers():
        machine = one.machine
        packages = ", ".join(f"{package} {version}" for package, version in sorted(one.packages.items()))
        rows = len(one.measurements) + len(one.engines)
        facts = [
            (page.say("rows"), f"{rows}" + (f"; {len(one.unfinished)} {page.say('not measured yet')}"
                                            if one.unfinished else "")),
            (page.say("command"), f"`{_command(one)}`"), (page.say("commit"), f"<code>{one.commit[:12]}</code>"),
            (page.say("machine"), f"{machine['device']}, {machine['cores']} {page.say('cores')}, {machine['system']} "
                                  f"{machine['processor']}, Python {machine['python']}"),
            (page.say("settings"), ", ".join(f"{key} {value}" for key, value in sorted(one.settings.items()))),
            (page.say("packages"), packages), *((page.say("note"), note) for note in one.notes)]
        parts.append(f"### {name}\n\n| | |\n|---|---|\n" + "\n".join(
            f"| {fact} | {_cell(value)} |" for fact, value in facts))
    return "\n\n".join(parts)


def overview(page: Page) -> str:
    """Every own row and every peer, one request at a time, in one table a ledger."""
    found = [(name, _summary(one)) for name, one in ledgers() if one.measurements]
    return "\n\n".join(f"{_from(page, name)}\n\n{text}" for name, text in found)


def of_stage(page: Page, stage: str) -> str:
    """Every row of a stage: a picture, counts, times beside their denominators, quality, and how to measure again.

    Raises:
        SiteError: no ledger has a row of it.
    """
    return _by_workload(page, int(stage), [report.counts_table, report.times_table, report.quality_table],
                        [page.say("Counts"), page.say("Times, and what they are to be compared with"),
                         page.say("How the text is spelled, and what retokenizing cost")])


def of_peers(page: Page) -> str:
    """Every row of another loop, beside ours.

    Raises:
        SiteError: no ledger has one.
    """
    return _by_workload(page, 0, [report.peers_table], [page.say("Their time to finished text by ours")])


def engines(page: Page) -> str:
    """The mask engines alone: the tables, and the time between masks as bars.

    Raises:
        SiteError: no ledger has a row of one.
    """
    parts = []
    for name, one in ledgers():
        if one.engines:
            drawn = bars(page, page.say("time between masks, microseconds"), [
                Bar(f"{row.engine} {place}", value, f"{value:.0f}", "engine")
                for row in one.engines for place, value in row.tbm_us.items()], logarithmic=True)
            parts += [_from(page, name), drawn, _sortable(report.engines_table(one)),
                      _again(page, one, [(row.engine, row.key) for row in one.engines])]
    if not parts:
        raise SiteError("no ledger has a row of a mask engine")
    return "\n\n".join(parts)


def growth(page: Page) -> str:
    """How costs grow with sizes: a line a curve, and what each is for. Nothing where no ledger has measured it."""
    parts = []
    for name, one in ledgers():
        if one.growth:
            curves = "\n".join(f"- **{spec.name}**: {spec.why}" for spec in CURVES)
            last = {(row.curve, row.of): row for row in sorted(one.growth, key=lambda row: row.size)}
            lines = dict.fromkeys((row.curve, row.of) for row in one.growth)
            drawn = bars(page, page.say("by which power of its size a cost grows (above 1: faster than the size)"), [
                Bar(f"{curve}, {of}", grows, f"{grows:z.2f}", "engine") for curve, of in lines if (grows := power(
                    [row for row in one.growth if (row.curve, row.of) == (curve, of)])) is not None], mark=1.0)
            parts += [f"## {page.say('How costs grow')}", curves, _from(page, name), drawn,
                      _sortable(report.growth_table(one)),
                      _again(page, one, [(f"{row.curve}, {row.of}, {row.size}", row.key) for row in last.values()])]
    return "\n\n".join(parts)


def losses(page: Page, *stage: str) -> str:
    """Everything that is against us, worst first; or the ratios of a stage, or of the peers (0)."""
    parts = []
    for name, one in ledgers():
        rows = [row for row in one.measurements if not stage or str(row.stage) in stage]
        shown = replace(one, measurements=rows, growth=[], engines=[]) if stage else one
        if rows or (not stage and (one.growth or one.engines)):
            found = report.losses(shown)
            parts.append(f'{_from(page, name)}\n\n<section data-search-exclude="" markdown="1">\n\n{found}\n\n'
                         "</section>")
    return "\n\n".join(parts)


def worst(page: Page, stage: str) -> str:
    """The worst losses of a stage, a handful, one request at a time; its own page has all."""
    found = []
    for _, one in ledgers():
        rows = [row for row in one.measurements if str(row.stage) == stage and row.batch == 1]
        lines = report.losses(replace(one, measurements=rows, growth=[], engines=[])).splitlines() if rows else []
        found += [line for line in lines if line.startswith("- ")][:_WORST]
    return "\n".join(found) or page.say("No row is slower than free decoding.")


def traps(page: Page) -> str:
    """Every workload: why it is there, what misleads in its result, and whether a ledger has it."""
    measured = {row.workload for _, one in ledgers() for row in one.measurements}
    rows = "\n".join(f"| `{one.name}` | {_cell(one.why)} | {_cell(one.trap)} | "
                     f"{page.say('yes') if one.name in measured else page.say('not yet')} |" for one in all_workloads())
    return (f"| {page.say('workload')} | {page.say('why it is there')} | {page.say('trap')} | "
            f"{page.say('in a ledger')} |\n|---|---|---|---|\n{rows}")


def brief(page: Page, stage: str) -> str:
    """A stage beside the one before it, one request at a time, default backends, on the workloads of a quick run.

    Raises:
        SiteError: no ledger has a row of the stage.
    """
    wanted = (int(stage) - 1 or int(stage), int(stage))
    quick = {one.name for one in all_workloads() if one.quick}
    defaults = {spec.id: spec.capabilities.backends[0] for spec in stages.all_stages()}
    found = []
    for name, one in ledgers():
        rows = [row for row in one.measurements if row.stage in wanted and row.batch == 1 and row.workload in quick
                and row.backend == defaults[row.stage]]
        if any(row.stage == int(stage) for row in rows):
            found.append((len(rows), name, replace(one, measurements=sorted(rows, key=lambda row: row.stage))))
    if not found:
        raise SiteError(f"no ledger has a row of stage {stage}")
    _, name, one = max(found, key=lambda entry: entry[0])
    return f"{_from(page, name)}\n\n{_summary(one)}"


def _summary(ledger: Ledger) -> str:
    """As in the report; the second column is text here too."""
    return _sortable(report.summary(ledger), texts=2)


def _by_workload(page: Page, stage: int, tables: Sequence[Callable[[Sequence[Measurement]], str]],
                 titles: Sequence[str]) -> str:
    parts = []
    known = {one.name: one for one in all_workloads()}
    for name, one in ledgers():
        rows = [row for row in one.measurements if row.stage == stage]
        if rows:
            parts.append(f"## {page.say('From')} {name}")
        for workload in dict.fromkeys(row.workload for row in rows):
            of_it = [row for row in rows if row.workload == workload]
            parts.append(f"### {workload}")
            if workload in known:
                parts.append(f"{known[workload].why} **{page.say('Trap')}:** {known[workload].trap}")
            parts.append(_picture(page, of_it))
            for table, title in zip(tables, titles, strict=True):
                parts.append(f"**{title}**\n\n{_sortable(table(of_it))}")
            parts.append(_again(page, one, [(f"{report.label(row)}, {page.say('batch')} {row.batch}", row.key)
                                            for row in of_it]))
    if not parts:
        raise SiteError(f"no ledger has a row of {f'stage {stage}' if stage else 'a peer'}")
    return "\n\n".join(parts)


def _picture(page: Page, rows: Sequence[Measurement]) -> str:
    """Passes for 100 tokens and time by free decoding of the smallest batch; of peers their time by ours."""
    batch = min(row.batch for row in rows)
    shown = [row for row in rows if row.batch == batch]
    if not shown[0].stage:
        return bars(page, page.say("time to finished text by that of stage 5, plain (above 1 ours is faster)"), [
            Bar(report.label(row), ratio.median, report.interval(ratio), "peer", ratio.low, ratio.high)
            for row in shown if (ratio := row.ratios.get("over_stage5_plain")) is not None], mark=1.0)
    passes = [Bar(report.label(row), value, f"{value:.0f}", f"stage{row.stage}") for row in shown
              for value in (100 * row.counts["steps"] / max(1, row.counts["tokens"]),)]
    times = [Bar(report.label(row), ratio.median, report.interval(ratio), f"stage{row.stage}", ratio.low, ratio.high)
             for row in shown if (ratio := row.ratios.get("over_free")) is not None]
    head = f"{page.say('batch')} {batch}: "
    return "\n\n".join([bars(page, head + page.say("forward passes for 100 tokens"), passes),
                        bars(page, head + page.say("time per token, by that of free decoding (below 1: faster)"), times,
                             mark=1.0)])


def _again(page: Page, ledger: Ledger, rows: Sequence[tuple[str, str]]) -> str:
    """The command that measures each of these rows again, by label and key; folded.

    A ledger of another program, as the check on a GPU, has one command for all of its rows.
    """
    of_bench = "bench" in ledger.command
    lines = "\n".join(f"    # {label}\n    {report.again(ledger, key)}" for label, key in rows) if of_bench else (
        f"    {_command(ledger)}")
    title = page.say("Reproduce a row (each takes a minute or more, so the tests only see that it can be typed)")
    return (f'<section data-search-exclude="" markdown="1">\n\n??? reproduce "{title}"\n\n    ```text\n{lines}\n'
            "    ```\n\n</section>")


def _command(ledger: Ledger) -> str:
    """How the ledger was made, as one would type it: without the folder that the program lay in."""
    words = ledger.command[1:] if ledger.command[0] == "python" else ledger.command
    return " ".join([words[0].rsplit("/", 1)[-1], *words[1:]])


def _from(page: Page, name: str) -> str:
    return f'<p class="source">{escape(page.say("From"))} <code>benchmarks/results/{escape(name)}</code></p>'


def _sortable(table: str, texts: int = 1) -> str:
    """A table whose first columns are texts and the others numbers; a style in every cell would double the page."""
    bare = table.replace("---:", "---")
    return f'<div class="sortable numbers texts{texts}" data-search-exclude="" markdown="1">\n\n{bare}\n\n</div>'


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")

