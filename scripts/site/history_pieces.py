"""Pieces made from the timeline: facts of one commit, the whole table, commits per month, lines by kind."""

from __future__ import annotations

from html import escape

import stages
from history.figures import churn, commits_by_month
from history.timeline import KINDS, TimelineRow, timeline
from scripts.site.html import commit, filter_form
from scripts.site.page import Page, SiteError


def row(short: str, what: str) -> str:
    """One fact of the timeline: `row 935cda944b deletions`.

    Raises:
        SiteError: the timeline does not have the commit.
    """
    found = next((one for one in timeline() if one.hash.startswith(short)), None)
    if found is None:
        raise SiteError(f"the timeline has no {short}")
    return str(found.as_dict()[what])


def timeline_table(page: Page) -> str:
    """Every commit, to be filtered."""
    body = "".join(_row(one) for one in timeline())
    heads = "".join(f'<th scope="col">{page.say(name)}</th>' for name in (
        "date", "commit", "PR", "title", "stage", "kind")) + "".join(
        f'<th scope="col" class="number">{page.say(name)}</th>' for name in ("files", "added", "deleted"))
    return (filter_form(page, "timeline", {"stage": [str(spec.id) for spec in stages.all_stages()], "kind": KINDS})
            + f'<div class="scroll" tabindex="0" role="region" aria-label="{page.say("Timeline")}">'
            f'<table class="data sortable" id="timeline"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
            "</div>")


def _row(one: TimelineRow) -> str:
    cells = (f'<td class="date">{one.date}</td>', f"<td>{commit(one.short)}</td>",
             f"<td>{f'#{one.pr}' if one.pr else ''}</td>", f"<td>{escape(one.title)}</td>", f"<td>{one.stage}</td>",
             f"<td>{one.kind}</td>",
             *(f'<td class="number">{number}</td>' for number in (one.files_changed, one.insertions, one.deletions)))
    return f'<tr data-stage="{one.stage}" data-kind="{one.kind}">{"".join(cells)}</tr>'


def months(page: Page) -> str:
    """Commits per month, by stage, as bars; the numbers stand in the table below them."""
    found = commits_by_month(timeline())
    names = sorted({one.month for one in found})
    most = max(sum(one.commits for one in found if one.month == month) for month in names)
    stage = page.say("stage")
    bars, rows = [], []
    for at, month in enumerate(names):
        floor, cells = 0.0, []
        for one in (one for one in found if one.month == month):
            height = 140 * one.commits / most
            bars.append(f'<rect class="stage{one.stage}" x="{30 + 22 * at}" y="{150 - floor - height:.1f}" width="16" '
                        f'height="{height:.1f}"><title>{month}, {stage} {one.stage}: {one.commits}</title></rect>')
            floor += height
            cells.append(f"{one.commits} ({stage} {one.stage})")
        bars.append(f'<text x="{38 + 22 * at}" y="160" transform="rotate(60 {38 + 22 * at} 160)">{month}</text>')
        rows.append(f"<tr><td>{month}</td><td>{', '.join(cells)}</td></tr>")
    width = 50 + 22 * len(names)
    key = "".join(f'<span><i class="stage{spec.id}"></i>{stage} {spec.id}</span>' for spec in stages.all_stages())
    said = page.say("Commits per month by stage; the table below has the numbers")
    return (f'<figure class="bars"><div class="scroll" tabindex="0" role="region" '
            f'aria-label="{page.say("Commits per month")}">'
            f'<svg viewBox="0 0 {width} 205" width="{width}" height="205" role="img" '
            f'aria-label="{said}">{"".join(bars)}</svg></div>'
            f'<figcaption class="key">{key}</figcaption></figure>'
            f'<details><summary>{page.say("The numbers")}</summary><table class="data"><thead><tr>'
            f'<th scope="col">{page.say("month")}</th><th scope="col">{page.say("commits")}</th></tr></thead>'
            f'<tbody>{"".join(rows)}</tbody></table></details>')


def churn_table(page: Page) -> str:
    """Lines added and deleted, by stage and kind."""
    head = " | ".join(page.say(name) for name in ("stage", "kind", "lines added", "lines deleted"))
    return f"| {head} |\n|--:|---|--:|--:|\n" + "".join(
        f"| {one.stage} | {one.kind} | {one.insertions} | {one.deletions} |\n" for one in churn(timeline()))
