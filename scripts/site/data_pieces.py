"""Pieces made from data: recordings, the timeline, the museum, the deviations."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from html import escape

import stages
from history.figures import churn, commits_by_month
from history.timeline import KINDS, TimelineRow, timeline
from jumpforward.museum.catalogue import Commit, MuseumRow, all_rows
from jumpforward.stepper.automaton import automaton_of
from jumpforward.stepper.picture import draw
from scripts.site.page import ROOT, Page, SiteError, commit_link, recording
from shared_runtime.constraint import Constraint

_COUNTS = ("forward_passes", "sampled", "jumped", "forced", "drafted", "accepted", "masks")
_EVIDENCE = {"ran": "the historical code was run and showed it", "read": "concluded from reading the historical code",
             "repair": "told by the commit that repaired it"}


def count(name: str, what: str) -> str:
    """One number of a recording."""
    return str(recording(name)["counts"][what])


def counts(*names: str) -> str:
    """The counts of recordings, side by side."""
    found = [recording(name) for name in names]
    head = "| | " + " | ".join(label(one) for one in found) + " |\n|---|" + "--:|" * len(found) + "\n"
    return head + "".join(
        f"| {what.replace('_', ' ')} | " + " | ".join(str(one["counts"][what]) for one in found) + " |\n"
        for what in _COUNTS if any(one["counts"][what] for one in found))


def label(one: Mapping[str, dict[str, object]]) -> str:
    """A recording's stage and switches, as the head of a column."""
    settings = one["settings"]
    extras = [text for text, on in (("overlap", settings["overlap"]), (str(settings["backend_jump"]),
              settings["backend_jump"] != "none"), (str(settings["spec"]), settings["spec"] != "none")) if on]
    return " + ".join([f"stage {one['stage']['id']}", *extras])


def player(page: Page, *names: str) -> str:
    """The player of these recordings."""
    for name in names:
        recording(name)
    source = " ".join(f"{page.up}recordings/{name}.json" for name in names)
    return (f'<div class="jf-player" data-src="{source}" data-heading="3"></div>\n'
            "<noscript><p>The player needs JavaScript. <code>jumpforward step --stage 2 --plain</code> prints a "
            "request turn by turn.</p></noscript>\n\n"
            '<p class="keys">Keys, once the player has the focus: <kbd>→</kbd> <kbd>←</kbd> a turn, <kbd>Home</kbd> '
            "<kbd>End</kbd>, <kbd>space</kbd> plays; <kbd>m</kbd> <kbd>j</kbd> <kbd>d</kbd> <kbd>r</kbd> to the next "
            "mask, jump, draft, rejection.</p>")


def vocabulary(name: str) -> str:
    """How many tokens the recorded model can choose from."""
    return next(f"{frame['mask']['width']:,}" for frame in recording(name)["frames"] if frame["mask"])


def request(name: str) -> str:
    """What the recorded request asked for, and what came."""
    one = recording(name)
    return (f"- Prompt: `{one['request']['prompt']}`\n- Regex: `{one['request']['constraint']['source']}`\n"
            f"- Answer: `{one['answer']}`")


def fsm(pattern: str) -> str:
    """A regex's minimal automaton, as the stepper draws it."""
    automaton = automaton_of(Constraint.regex(pattern))
    if automaton is None:
        raise SiteError(f"no automaton for {pattern!r}")
    drawn = draw(automaton)
    return (f'<figure class="fsm"><div class="scroll" tabindex="0" role="region" aria-label="The automaton">{drawn.svg}'
            f"</div><figcaption><code>{escape(pattern)}</code>. {escape(drawn.text)}</figcaption></figure>")


def row(short: str, what: str) -> str:
    """One fact of the timeline: `row 935cda944b deletions`."""
    found = next((one for one in timeline() if one.hash.startswith(short)), None)
    if found is None:
        raise SiteError(f"the timeline has no {short}")
    return str(found.as_dict()[what])


def total(what: str) -> str:
    """How many there are of `commits`, `bugs`."""
    return str({"commits": len(timeline()), "bugs": len(all_rows())}[what])


def timeline_table() -> str:
    """Every commit, to be filtered."""
    body = "".join(_timeline_row(one) for one in timeline())
    return (_filter("timeline", {"stage": [str(spec.id) for spec in stages.all_stages()], "kind": KINDS}, search=True)
            + '<div class="scroll" tabindex="0" role="region" aria-label="Timeline"><table class="data sortable" '
            'id="timeline"><thead><tr>' + "".join(f'<th scope="col">{name}</th>' for name in (
                "date", "commit", "PR", "title", "stage", "kind", "files", "added", "deleted"))
            + f"</tr></thead><tbody>{body}</tbody></table></div>")


def _timeline_row(one: TimelineRow) -> str:
    cells = (f'<td class="date">{one.date}</td>', f"<td>{_commit(one.short)}</td>",
             f"<td>{f'#{one.pr}' if one.pr else ''}</td>", f"<td>{escape(one.title)}</td>", f"<td>{one.stage}</td>",
             f"<td>{one.kind}</td>",
             *(f'<td class="number">{number}</td>' for number in (one.files_changed, one.insertions, one.deletions)))
    return f'<tr data-stage="{one.stage}" data-kind="{one.kind}">{"".join(cells)}</tr>'


def _commit(short: str) -> str:
    return f'<a href="{commit_link(short)}"><code>{short}</code></a>'


def _filter(target: str, fields: Mapping[str, Iterable[str]], *, search: bool = False) -> str:
    groups = "".join(
        f'<fieldset><legend>{field}</legend>' + "".join(
            f'<label><input type="checkbox" data-field="{field}" value="{value}" checked> {value}</label>'
            for value in values) + "</fieldset>" for field, values in fields.items())
    box = '<label class="word">contains <input type="search" data-word></label>' if search else ""
    return f'<form class="filter" data-target="{target}" aria-label="Filter">{groups}{box}<output></output></form>'


def months() -> str:
    """Commits per month, by stage, as bars; the numbers stand in the table below them."""
    found = commits_by_month(timeline())
    names = sorted({one.month for one in found})
    most = max(sum(one.commits for one in found if one.month == month) for month in names)
    bars, rows = [], []
    for at, month in enumerate(names):
        floor, cells = 0.0, []
        for one in (one for one in found if one.month == month):
            height = 140 * one.commits / most
            bars.append(f'<rect class="stage{one.stage}" x="{30 + 22 * at}" y="{150 - floor - height:.1f}" width="16" '
                        f'height="{height:.1f}"><title>{month}, stage {one.stage}: {one.commits}</title></rect>')
            floor += height
            cells.append(f"{one.commits} of stage {one.stage}")
        bars.append(f'<text x="{38 + 22 * at}" y="160" transform="rotate(60 {38 + 22 * at} 160)">{month}</text>')
        rows.append(f"<tr><td>{month}</td><td>{', '.join(cells)}</td></tr>")
    width = 50 + 22 * len(names)
    key = "".join(f'<span><i class="stage{spec.id}"></i>stage {spec.id}</span>' for spec in stages.all_stages())
    return (f'<figure class="bars"><div class="scroll" tabindex="0" role="region" aria-label="Commits per month">'
            f'<svg viewBox="0 0 {width} 205" width="{width}" height="205" role="img" '
            f'aria-label="Commits per month by stage; the table below has the numbers">{"".join(bars)}</svg></div>'
            f'<figcaption class="key">{key}</figcaption></figure>'
            f'<details><summary>The numbers</summary><table class="data"><thead><tr><th scope="col">month</th>'
            f'<th scope="col">commits</th></tr></thead><tbody>{"".join(rows)}</tbody></table></details>')


def churn_table() -> str:
    """Lines added and deleted, by stage and kind."""
    return "| stage | kind | lines added | lines deleted |\n|--:|---|--:|--:|\n" + "".join(
        f"| {one.stage} | {one.kind} | {one.insertions} | {one.deletions} |\n" for one in churn(timeline()))


def bugs(page: Page, stage: str) -> str:
    """A stage's bugs, a line each, linked into the museum."""
    found = [one for one in all_rows() if int(stage) in one.stages]
    lines = [f'- [{one.number}: {one.title}]({_museum(page)}#row-{one.number}). {one.symptom}' for one in found]
    return f"{len(found)} specimens of the museum belong to this generation.\n\n" + "\n".join(lines)


def _museum(page: Page) -> str:
    return "../" * (len(page.path.parts) - 1) + "museum.md"


def museum() -> str:
    """Every bug of the museum."""
    values = [str(spec.id) for spec in stages.all_stages()]
    return _filter("museum", {"stage": values}, search=True) + '\n<div id="museum">\n' + "\n".join(
        _bug(one) for one in all_rows()) + "\n</div>"


def _bug(one: MuseumRow) -> str:
    facts = [("Symptom", one.symptom), ("Cause", one.cause), ("Smallest case", one.scenario), ("Wrong", one.wrong),
             ("Right", one.right), ("Invariant", one.invariant), ("See it", one.see)]
    found = _commits(one.found) or "never, while its code lived"
    facts_html = "".join(f"<dt>{name}</dt><dd>{_with_code(text)}</dd>" for name, text in facts)
    caused = f"<dt>Brought by</dt><dd>{_commits(one.caused_by)}</dd>" if one.caused_by else ""
    needs = f"<dt>Needs</dt><dd>{escape(', '.join(one.needs))}</dd>" if one.needs else ""
    return (f'<article class="bug" data-stage="{" ".join(map(str, one.stages))}">'
            f'<h3 id="row-{one.number}">{one.number}: {_with_code(one.title)}</h3>'
            f'<p class="meta">stage {", ".join(map(str, one.stages))}; {_EVIDENCE[one.evidence]}</p>'
            f"<dl>{facts_html}{caused}<dt>Mended by</dt><dd>{found}</dd>{needs}<dt>Let it happen</dt>"
            f"<dd><code>{escape(one.command)}</code></dd></dl></article>")


def _with_code(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _commits(entries: Iterable[Commit]) -> str:
    return ", ".join(f"{_commit(one.commit)}{f' (#{one.pr})' if one.pr else ''}, {one.date}" for one in entries)


def exercises() -> str:
    """Every exercise, by number."""
    rows = []
    for path in sorted((ROOT / "exercises").glob("*/exercise.toml")):
        one = tomllib.loads(path.read_text(encoding="utf-8"))
        cells = (int(path.parent.name[:2]), one["title"], one["minutes"], one["difficulty"],
                 ", ".join(map(str, one["stages"])), one["replaces"])
        rows.append(f"| {' | '.join(map(str, cells))} |\n")
    return ("| number | exercise | minutes | difficulty | stages | what your file takes the place of |\n"
            "|--:|---|--:|---|---|---|\n" + "".join(rows))


def deviations() -> str:
    """What each library of today gets wrong, per backend."""
    found: dict[str, list[str]] = {}
    for folder in ("stages", *(f"stages/{spec.name}" for spec in stages.all_stages())):
        path = ROOT / folder / "deviations.toml"
        for one in tomllib.loads(path.read_text(encoding="utf-8"))["deviation"] if path.is_file() else ():
            entry = _deviation(one)
            if entry not in found.setdefault(one["backend"], []):
                found[one["backend"]].append(entry)
    return "\n\n".join(f"## {backend}\n\n{len(entries)} rows.\n\n" + "\n".join(entries)
                       for backend, entries in sorted(found.items()))


def _deviation(one: Mapping[str, str]) -> str:
    what = one.get("what") or one["effect"]
    name = one.get("feature") or one.get("case") or one.get("id", "")
    title = "every grammar" if name == "*" else name
    shown = [("reproducer", one.get("reproducer", "").strip()), ("schema", one.get("schema", "")),
             ("lets through", one.get("accepts", "")), ("keeps out", one.get("refuses", ""))]
    body = "".join(f'<p>{label}</p><pre tabindex="0"><code>{escape(text)}</code></pre>'
                   for label, text in shown if text)
    return (f'<details class="deviation"><summary><strong>{escape(title)}</strong>: {_with_code(what)} '
            f"<small>({escape(one['library'])} {escape(one['version'])})</small></summary>"
            f'<p><a href="{escape(one["upstream"])}">upstream</a></p>{body}</details>')
