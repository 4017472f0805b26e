"""Pieces made from the museum's rows: all of them, those of a stage, how many."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import stages
from history.timeline import timeline
from jumpforward.museum.catalogue import Commit, MuseumRow, all_rows
from scripts.site.html import commit, filter_form, with_code
from scripts.site.page import Page

_EVIDENCE = {"ran": "the historical code was run and showed it", "read": "concluded from reading the historical code",
             "repair": "told by the commit that repaired it"}


def total(what: str) -> str:
    """How many there are of `commits`, `bugs`."""
    return str({"commits": len(timeline()), "bugs": len(all_rows())}[what])


def bugs(page: Page, stage: str) -> str:
    """A stage's bugs, a line each, linked into the museum."""
    found = [one for one in all_rows() if int(stage) in one.stages]
    museum_page = "../" * (len(page.path.parts) - 1) + "museum.md"
    lines = [f"- [{one.number}: {one.title}]({museum_page}#row-{one.number}). {one.symptom}" for one in found]
    return page.say("{n} specimens of the museum belong to this generation.").replace("{n}", str(len(found))) + (
        "\n\n" + "\n".join(lines))


def museum(page: Page) -> str:
    """Every bug of the museum."""
    values = [str(spec.id) for spec in stages.all_stages()]
    return filter_form(page, "museum", {"stage": values}) + '\n<div id="museum">\n' + "\n".join(
        _bug(page, one) for one in all_rows()) + "\n</div>"


def _bug(page: Page, one: MuseumRow) -> str:
    facts = [("Symptom", one.symptom), ("Cause", one.cause), ("Smallest case", one.scenario), ("Wrong", one.wrong),
             ("Right", one.right), ("Invariant", one.invariant), ("See it", one.see)]
    found = _commits(one.found) or page.say("never, while its code lived")
    facts_html = "".join(f"<dt>{page.say(name)}</dt><dd>{with_code(text)}</dd>" for name, text in facts)
    caused = f"<dt>{page.say('Brought by')}</dt><dd>{_commits(one.caused_by)}</dd>" if one.caused_by else ""
    needs = f"<dt>{page.say('Needs')}</dt><dd>{escape(', '.join(one.needs))}</dd>" if one.needs else ""
    return (f'<article class="bug" data-stage="{" ".join(map(str, one.stages))}">'
            f'<h3 id="row-{one.number}">{one.number}: {with_code(one.title)}'
            f'<a class="headerlink" href="#row-{one.number}" title="Permanent link">¶</a></h3>'
            f'<p class="meta">{page.say("stage")} {", ".join(map(str, one.stages))}; '
            f"{page.say(_EVIDENCE[one.evidence])}</p>"
            f"<dl>{facts_html}{caused}<dt>{page.say('Mended by')}</dt><dd>{found}</dd>{needs}"
            f"<dt>{page.say('Let it happen')}</dt><dd><code>{escape(one.command)}</code></dd></dl></article>")


def _commits(entries: Iterable[Commit]) -> str:
    return ", ".join(f"{commit(one.commit)}{f' (#{one.pr})' if one.pr else ''}, {one.date}" for one in entries)
