"""What the notebooks share: a table, and the tokens of an answer with their borders, coloured by how each came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from jumpforward.stepper.automaton import visible_text
from shared_runtime.trace import TokenOrigin
from shared_runtime.vocabulary import Vocabulary

# Dark on light, whatever the theme; the border's style says the same as the colour.
_LOOKS: dict[TokenOrigin, tuple[str, str]] = {
    "sampled": ("#dbeafe", "solid"), "jumped": ("#fef08a", "double"), "forced": ("#fef08a", "double"),
    "draft_accepted": ("#f5d0fe", "dashed"), "draft_rejected": ("#fecaca", "dotted")}

NO_FORMULAS = "mathjax_ignore tex2jax_ignore"
"""Classes of an output in which a dollar is a dollar; else JupyterLab sets what is between two as a formula."""

_SHORT = 12  # letters: dates and hashes are not broken


@dataclass(frozen=True)
class Table:
    """Rows under a head. Numbers are shown with thousands marked, floats with one digit behind the point.

    Attributes:
        head: the columns' names. rows: as many cells each.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[object]]

    def _repr_html_(self) -> str:
        """The table for a notebook."""
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.head)
        body = "".join("<tr>" + "".join(f'<td style="text-align:{_side(cell)}{_wrap(cell)}">{escape(_shown(cell))}</td>'
                                        for cell in row) + "</tr>" for row in self.rows)
        return f'<table class="{NO_FORMULAS}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'

    def __repr__(self) -> str:
        """The table as text."""
        lines = [list(self.head), *([_shown(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
                         for line in lines)


@dataclass(frozen=True)
class Tokens:
    """Tokens side by side, one box each.

    Attributes:
        texts: what each spells; "" for a stop token. origins: how each came; "sampled" for all when left out.
        title: a line in front.
    """

    texts: Sequence[str]
    origins: Sequence[TokenOrigin] = ()
    title: str = ""

    @classmethod
    def of(cls, vocabulary: Vocabulary, ids: Sequence[int], origins: Sequence[TokenOrigin] = (),
           title: str = "") -> Tokens:
        """The tokens with these ids; bytes that are no character alone are shown as U+FFFD."""
        return cls([vocabulary.token_bytes[one].decode("utf-8", "replace") for one in ids], origins, title)

    def _repr_html_(self) -> str:
        """The boxes for a notebook."""
        origins = self.origins or ["sampled"] * len(self.texts)
        boxes = "".join(
            f'<span title="{origin}" style="background:{_LOOKS[origin][0]};color:#111;border:2px {_LOOKS[origin][1]} '
            f'#555;border-radius:3px;padding:0 2px;margin:1px;display:inline-block;white-space:pre">'
            f"{escape(visible_text(text)) or 'stop'}</span>"
            for text, origin in zip(self.texts, origins, strict=True))
        title = f"<div>{escape(self.title)}</div>" if self.title else ""
        return f'<div class="{NO_FORMULAS}" style="font-family:monospace;line-height:1.9">{title}{boxes}</div>'

    def __repr__(self) -> str:
        """The tokens as text, a bar between two."""
        return (f"{self.title}\n" if self.title else "") + "|".join(visible_text(text) or "stop" for text in self.texts)


def _wrap(cell: object) -> str:
    return ";white-space:nowrap" if len(_shown(cell)) <= _SHORT else ""


def _side(cell: object) -> str:
    return "right" if isinstance(cell, int | float) and not isinstance(cell, bool) else "left"


def _shown(cell: object) -> str:
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return str(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.1f}"
