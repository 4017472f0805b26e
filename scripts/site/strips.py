"""The strips that tell a stage in six panels: little drawings from `strips.toml`, with their captions as text.

A drawing is a few rows. `tokens` are squares (S sampled, J forced, D drafted, X forbidden, _ still empty), `states` a
chain of circles with the present one in brackets, `boxes` are joined by arrows, `bars` compare a count of recordings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from html import escape

from scripts.site.page import Page, SiteError, recording

_WIDTH, _ROW, _ROWS_HIGH = 240, 34, 3
_TOKENS = {"S": "sampled", "J": "jumped", "D": "drafted", "X": "forbidden", "_": "empty"}


def strip(page: Page, stage: str) -> str:
    """The six panels of a stage, in the page's language.

    Raises:
        SiteError: there are not six of them, or a drawing asks for something that is not there.
    """
    path = page.own("strips.toml")
    panels = tomllib.loads(path.read_text(encoding="utf-8")).get(f"stage{stage}", [])
    if len(panels) != 6:
        raise SiteError(f"{path.name}: stage {stage} has {len(panels)} panels and not six")
    items = "".join(f'<li><svg viewBox="0 0 {_WIDTH} {_ROWS_HIGH * _ROW}" aria-hidden="true" focusable="false">'
                    f'{_drawing(panel["draw"])}</svg><p>{escape(panel["text"])}</p></li>' for panel in panels)
    return f'<ol class="strip" aria-label="{page.say("Six panels: stage")} {stage}">{items}</ol>'


def _drawing(rows: list[str]) -> str:
    top = (_ROWS_HIGH - len(rows)) * _ROW / 2
    parts = []
    for at, row in enumerate(rows):
        kind, _, rest = row.partition(" ")
        if kind not in _ROWS:
            raise SiteError(f"strips.toml: there is no row {kind!r} (use one of: {', '.join(_ROWS)})")
        parts.append(f'<g transform="translate(0 {top + at * _ROW})">{_ROWS[kind](rest.split())}</g>')
    return "".join(parts)


def _tokens(words: list[str]) -> str:
    size = min(24.0, (_WIDTH - 16) / len(words) - 3)
    left = (_WIDTH - len(words) * (size + 3)) / 2
    return "".join(
        f'<rect class="{_TOKENS[word]}" x="{left + at * (size + 3):.1f}" y="5" width="{size:.1f}" height="24" rx="3"/>'
        + (f'<path class="cross" d="M{left + at * (size + 3) + 4:.1f} 9 l{size - 8:.1f} 16 m0 -16 l{8 - size:.1f} 16"/>'
           if word == "X" else "") for at, word in enumerate(words))


def _states(words: list[str]) -> str:
    gap = min(52.0, (_WIDTH - 40) / max(1, len(words) - 1))
    left = (_WIDTH - gap * (len(words) - 1)) / 2
    parts = []
    for at, word in enumerate(words):
        x = left + at * gap
        if at:
            parts.append(f'<path class="line" d="M{x - gap + 12:.1f} 17 h{gap - 26:.1f} m-4 -4 l4 4 l-4 4"/>')
        here = word.startswith("[")
        parts.append(f'<circle class="{"here" if here else "state"}" cx="{x:.1f}" cy="17" r="11"/>'
                     + _label(x, 21, word.strip("[]"), "inverse" if here else ""))
    return "".join(parts)


def _boxes(words: list[str]) -> str:
    names = [word.replace("_", " ") for word in words]
    gap = 16
    widths = [6.6 * len(name) + 12 for name in names]
    scale = min(1.0, (_WIDTH - 8) / (sum(widths) + gap * (len(names) - 1)))
    left = (_WIDTH / scale - sum(widths) - gap * (len(names) - 1)) / 2
    parts = []
    for at, (name, width) in enumerate(zip(names, widths, strict=True)):
        if at:
            parts.append(f'<path class="line" d="M{left - gap + 2:.1f} 17 h{gap - 5} m-4 -4 l4 4 l-4 4"/>')
        parts.append(f'<rect class="box" x="{left:.1f}" y="4" width="{width:.1f}" height="26" rx="4"/>'
                     + _label(left + width / 2, 21, name))
        left += width + gap
    return f'<g transform="translate(0 {17 * (1 - scale):.1f}) scale({scale:.3f})">{"".join(parts)}</g>'


def _bars(words: list[str]) -> str:
    name, what = words
    number = recording(name)["counts"][what]
    most = max(recording(f"stage{stage}")["counts"][what] for stage in range(1, 6))
    width = 110 * number / most
    one = recording(name)
    jump = one["settings"]["backend_jump"]
    said = f"{one['stage']['id']}, {jump}" if jump != "none" else f"stage {one['stage']['id']}"
    return (_label(8, 21, said, "start")
            + f'<rect class="sampled" x="70" y="6" width="{width:.1f}" height="22" rx="3"/>'
            + _label(78 + width, 21, str(number), "start"))


def _word(words: list[str]) -> str:
    return _label(_WIDTH / 2, 21, " ".join(words).replace("_", " "), "mono")


def _label(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y}">{escape(text)}</text>'


_ROWS: dict[str, Callable[[list[str]], str]] = {
    "tokens": _tokens, "states": _states, "boxes": _boxes, "bars": _bars, "word": _word}
