"""What several pieces write as HTML: a commit's link, a form that filters, text with code in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape

from scripts.site.page import Page, commit_link


def commit(short: str) -> str:
    """A commit as a link upstream.

    Raises:
        SiteError: the history does not have it.
    """
    return f'<a href="{commit_link(short)}"><code>{short}</code></a>'


def filter_form(page: Page, target: str, fields: Mapping[str, Iterable[str]]) -> str:
    """Boxes to check for each value of a field, and a box for words; `site.js` hides what of `target` does not fit."""
    groups = "".join(
        f'<fieldset><legend>{page.say(field)}</legend>' + "".join(
            f'<label><input type="checkbox" data-field="{field}" value="{value}" checked> {value}</label>'
            for value in values) + "</fieldset>" for field, values in fields.items())
    box = f'<label class="word">{page.say("contains")} <input type="search" data-word></label>'
    return (f'<form class="filter" data-target="{target}" data-of="{page.say("of")}" '
            f'aria-label="{page.say("Filter")}">{groups}{box}<output></output></form>')


def with_code(text: str) -> str:
    """A sentence of data with its backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
