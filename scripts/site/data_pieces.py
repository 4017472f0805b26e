"""Pieces made from the metadata of exercises and from the stages' lists of deviations."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from html import escape

import stages
from scripts.site.html import with_code
from scripts.site.page import ROOT, Page


def exercises(page: Page) -> str:
    """Every exercise, by number."""
    rows = []
    for path in sorted((ROOT / "exercises").glob("*/exercise.toml")):
        one = tomllib.loads(path.read_text(encoding="utf-8"))
        cells = (int(path.parent.name[:2]), one["title"], one["minutes"], one["difficulty"],
                 ", ".join(map(str, one["stages"])) or page.say("loop"), one["replaces"])
        rows.append(f"| {' | '.join(map(str, cells))} |\n")
    head = " | ".join(page.say(name) for name in (
        "number", "exercise", "minutes", "difficulty", "stages", "what your file takes the place of"))
    return (f'<div class="sortable exercises" markdown="1">\n\n| {head} |\n|--:|---|--:|---|---|---|\n'
            f'{"".join(rows)}\n</div>')


def deviations(page: Page) -> str:
    """What each library of today gets wrong, per backend."""
    found: dict[str, list[str]] = {}
    for folder in ("stages", *(f"stages/{spec.name}" for spec in stages.all_stages())):
        path = ROOT / folder / "deviations.toml"
        for one in tomllib.loads(path.read_text(encoding="utf-8"))["deviation"] if path.is_file() else ():
            entry = _deviation(page, one)
            if entry not in found.setdefault(one["backend"], []):
                found[one["backend"]].append(entry)
    return "\n\n".join(f"## {backend}\n\n{len(entries)} {page.say('rows')}.\n\n" + "\n".join(entries)
                       for backend, entries in sorted(found.items()))


def _deviation(page: Page, one: Mapping[str, str]) -> str:
    what = one.get("what") or one["effect"]
    name = one.get("feature") or one.get("case") or one.get("id", "")
    title = page.say("every grammar") if name == "*" else name
    shown = [("reproducer", one.get("reproducer", "").strip()), ("schema", one.get("schema", "")),
             ("lets through", one.get("accepts", "")), ("keeps out", one.get("refuses", ""))]
    body = "".join(f'<p>{page.say(label)}</p><pre tabindex="0"><code>{escape(text)}</code></pre>'
                   for label, text in shown if text)
    return (f'<details class="deviation"><summary><strong>{escape(title)}</strong>: {with_code(what)} '
            f"<small>({escape(one['library'])} {escape(one['version'])})</small></summary>"
            f'<p><a href="{escape(one["upstream"])}">{page.say("upstream")}</a></p>{body}</details>')
