"""Horizontal bars as a list: a label, a bar, its value, and the interval where there is one.

What is drawn is written beside it, so a reader without pictures misses nothing, and a phone sets the labels above the
bars. Colours are the page's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from scripts.site.page import Page


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: what it stands for, its length, what is written behind it, its class, and where the value lies."""

    label: str
    value: float
    shown: str
    style: str
    low: float | None = None
    high: float | None = None


def bars(page: Page, title: str, rows: Sequence[Bar], *, mark: float | None = None, logarithmic: bool = False) -> str:
    """A figure; empty without rows.

    Args:
        page: where it stands. title: what the bars measure. rows: the bars, top down.
        mark: a value to draw a line at. logarithmic: lengths are those of the logarithms, from a tenth of the least.
    """
    if not rows:
        return ""
    most = max(value for row in rows for value in (row.value, row.high, mark) if value is not None)
    least = min(row.value for row in rows) / 10

    def share(value: float) -> float:
        if logarithmic:
            return 100 * math.log(max(value, least) / least) / math.log(most / least)
        return 100 * value / most

    line = f'<i class="mark" style="left:{share(mark):.1f}%"></i>' if mark is not None else ""
    items = []
    for row in rows:
        around = ""
        if row.low is not None and row.high is not None and row.high > row.low:
            around = (f'<i class="range" style="left:{share(row.low):.1f}%;'
                      f'width:{share(row.high) - share(row.low):.1f}%"></i>')
        items.append(f'<li><span class="label">{escape(row.label)}</span><span class="track" aria-hidden="true">'
                     f'<i class="bar {row.style}" style="width:{share(row.value):.1f}%"></i>{around}{line}</span>'
                     f'<span class="value">{escape(row.shown)}</span></li>')
    scale = f" {page.say('The scale is logarithmic.')}" if logarithmic else ""
    marked = f" {page.say('The line stands at')} {mark:g}." if mark is not None else ""
    return (f'<figure class="chart" data-search-exclude=""><figcaption>{escape(title[:1].upper() + title[1:])}.'
            f"{marked}{scale}</figcaption><ol>{''.join(items)}</ol></figure>")
