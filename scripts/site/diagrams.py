"""Diagrams of who does what when, from `diagrams.toml`: a lane for each part, time from left to right.

A lane is written as a row of cells between bars: `name | first | >> | | next`. A cell of `>>` makes the one before it
longer, an empty one is nothing, and a text that begins with `~` is a wait.
"""

from __future__ import annotations

import textwrap
import tomllib
from dataclasses import dataclass
from html import escape

from scripts.site.page import Page, SiteError

_NAME, _CELL, _LANE, _LINE, _LETTERS = 88, 108, 64, 15, 15


@dataclass(frozen=True, slots=True)
class _Box:
    """A text in a lane: the first moment it is there, and how many."""

    text: str
    start: int
    length: int


def diagram(page: Page, name: str) -> str:
    """One diagram, with the order of what it shows in words as its text alternative.

    Raises:
        SiteError: there is none of that name, or a lane is longer than the others.
    """
    path = page.own("diagrams.toml")
    found = tomllib.loads(path.read_text(encoding="utf-8")).get(name)
    if found is None:
        raise SiteError(f"{path.name}: there is no diagram {name!r}")
    lanes = {}
    for line in found["lanes"]:
        title, *cells = (one.strip() for one in line.split("|"))
        lanes[title] = cells
    moments = {len(cells) for cells in lanes.values()}
    if len(moments) != 1:
        raise SiteError(f"{path.name}: the lanes of {name} have {', '.join(map(str, sorted(moments)))} cells")
    boxes = {title: _boxes(cells) for title, cells in lanes.items()}
    count, text = moments.pop(), str(found["text"])
    drawn = _svg(boxes, count, f"{text} {_in_words(boxes, count)}")
    return (f'<figure class="lanes"><div class="scroll" tabindex="0" role="region" aria-label="{page.say("Diagram")}">'
            f"{drawn}</div><figcaption>{escape(text)}</figcaption></figure>")


def _boxes(cells: list[str]) -> list[_Box]:
    found: list[_Box] = []
    for at, text in enumerate(cells):
        if text == ">>" and found:
            last = found.pop()
            found.append(_Box(last.text, last.start, at - last.start + 1))
        elif text:
            found.append(_Box(text, at, 1))
    return found


def _in_words(boxes: dict[str, list[_Box]], moments: int) -> str:
    steps = []
    for at in range(moments):
        now = [f"{title}: {box.text.lstrip('~')}" for title, of_it in boxes.items() for box in of_it if box.start == at]
        steps += [f"{at + 1}. {'; '.join(now)}."] if now else []
    return " ".join(steps)


def _svg(boxes: dict[str, list[_Box]], moments: int, said: str) -> str:
    width, height = _NAME + moments * _CELL + 4, len(boxes) * _LANE + 4
    parts = []
    for lane, (title, of_it) in enumerate(boxes.items()):
        top = lane * _LANE + 2
        parts.append(f'<rect class="lane" x="0" y="{top}" width="{width}" height="{_LANE}"/>')
        parts += _text(title, 12, 8, top, "name")
        for box in of_it:
            x, wide = _NAME + box.start * _CELL + 3, box.length * _CELL - 6
            style = "wait" if box.text.startswith("~") else "does"
            parts.append(f'<rect class="{style}" x="{x}" y="{top + 5}" width="{wide}" height="{_LANE - 10}" rx="5"/>')
            parts += _text(box.text.lstrip("~").strip(), box.length * _LETTERS, x + wide / 2, top, style)
    return (f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
            f'aria-label="{escape(said)}">{"".join(parts)}</svg>')


def _text(text: str, letters: int, x: float, top: float, style: str) -> list[str]:
    lines = textwrap.wrap(text, letters)
    first = top + _LANE / 2 + 4 - (len(lines) - 1) * _LINE / 2
    return [f'<text class="{style}" x="{x}" y="{first + at * _LINE}">{escape(line)}</text>'
            for at, line in enumerate(lines)]
