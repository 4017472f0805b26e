"""The picture of a comparison: tables, bars, and the texts."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jumpforward.console import visible
from jumpforward.options import Prompt
from jumpforward.page import Column, tables
from shared_runtime.constraint import Constraint

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jumpforward.compare_command import Row

_LONGEST_BAR = 48
# How a token can come beside being sampled, and how many were offered for it; a column for each that some row has.
_OTHER_WAYS = ("jumped", "forced", "drafted", "accepted")
_VALID = {True: "yes", False: "NO", None: "-"}
_JUMP_NOTE = ("Overlap and backend jump exclude each other: what is forced is known only when the results of a pass "
              "are in, and with overlap the next pass has begun by then.")
_OVERLAP_NOTE = "With overlap, stage {} does not jump: a request cannot leave a batch whose next pass has begun."


def comparison_view(prompt: Prompt, constraint: Constraint | None, rows: Sequence[Row], *, width: int,
                    unicode: bool) -> list[RenderableType]:
    """Everything `compare` shows, part by part, for rich to print on a page of `width` columns."""
    from rich.text import Text

    labels = _labels(rows)
    asked = prompt.text if prompt.messages is None else prompt.messages[-1]["content"]
    head = Text.assemble(("prompt      ", "bold"), visible(asked or ""), "\n", ("constraint  ", "bold"),
                         "none" if constraint is None else visible(constraint.text), "\n")
    return [head, *tables(Column("stage", labels, is_number=False), _columns(rows), width=width, unicode=unicode),
            *(Text(textwrap.fill(note, width), style="yellow") for note in _notes(rows)), Text(),
            _bars(rows, labels, width, unicode), Text(), _texts(rows, labels)]


def _columns(rows: Sequence[Row]) -> list[list[Column]]:
    """What no machine changes, then what the grammar and the whole cost here."""
    ways = ["sampled", *(way for way in _OTHER_WAYS if any(row.counts.get(way, 0) for row in rows))]
    counts = [_column("passes", rows, lambda row: str(row.counts["forward_passes"])),
              _column("tokens", rows, lambda row: str(len(row.token_ids))),
              *(_column(way, rows, lambda row, way=way: str(row.counts[way])) for way in ways)]  # type: ignore[misc]
    costs = [Column("backend", [row.backend or "-" for row in rows], is_number=False),
             _column("compile\nms", rows, lambda row: f"{row.ms['compile']:.1f}"),
             _column("mask\nms", rows, lambda row: f"{row.ms['mask_per_step']:.2f}"),
             _column("total\nms", rows, lambda row: f"{row.ms['total']:.0f}"),
             Column("finish", [row.finish_reason or "refused" for row in rows], is_number=False),
             Column("valid", [_VALID[row.valid] for row in rows], is_number=False)]
    return [counts, costs]


def _column(title: str, rows: Sequence[Row], cell: Callable[[Row], str]) -> Column:
    return Column(title, ["-" if row.error is not None else cell(row) for row in rows])


def _labels(rows: Sequence[Row]) -> list[str]:
    """The rows' names: a stage, and what of the settings is not the stage's own way, which its first row shows."""
    own = {row.stage: row.overlap for row in reversed(rows)}
    names = []
    for row in rows:
        parts = [str(row.stage)]
        if (row.overlap, own[row.stage]) == ("on", "off"):
            parts.append("overlap")
        if row.backend_jump != "none":
            parts.append(row.backend_jump)
        names.append("+".join(parts))
    return names


def _notes(rows: Sequence[Row]) -> list[str]:
    """Which settings shut each other out: the reason why some rows are as they are."""
    notes = []
    jumping = {row.stage for row in rows if row.counts.get("jumped", 0)}
    for stage in sorted({row.stage for row in rows if row.overlap == "on"} & jumping):
        notes.append(_OVERLAP_NOTE.format(stage))
    if any(row.backend_jump != "none" for row in rows):
        notes.append(_JUMP_NOTE)
    return notes


def _bars(rows: Sequence[Row], labels: Sequence[str], width: int, unicode: bool) -> RenderableType:
    """Forward passes as bars: the number that no machine changes."""
    from rich.text import Text

    served = [(label, row.counts["forward_passes"]) for label, row in zip(labels, rows, strict=True)
              if row.error is None]
    most, names = max(passes for _, passes in served), max(len(label) for label, _ in served)
    longest = max(1, min(_LONGEST_BAR, width - names - len(f"   {most}")))
    lines = Text("forward passes\n", style="bold")
    for label, passes in served:
        lines.append(f"{label:<{names}}  ")
        lines.append(("█" if unicode else "#") * max(1, round(longest * passes / most)), style="cyan")
        lines.append(f" {passes}\n")
    lines.rstrip()
    return lines


def _texts(rows: Sequence[Row], labels: Sequence[str]) -> RenderableType:
    """Each text once, with the rows that gave it, and why a row refused."""
    from rich.text import Text

    by_text: dict[str, list[str]] = {}
    for label, row in zip(labels, rows, strict=True):
        if row.error is None:
            by_text.setdefault(row.text or "", []).append(label)
    page = Text()
    for text, names in by_text.items():
        page.append(f"stage {', '.join(names)}\n", style="bold")
        page.append(f"{visible(text)}\n")
    for label, row in zip(labels, rows, strict=True):
        if row.error is not None:
            page.append(f"stage {label} refused: {visible(str(row.error['message']))}\n", style="yellow")
    page.rstrip()
    return page
