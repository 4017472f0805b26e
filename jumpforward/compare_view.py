"""The picture of a comparison: a table, bars, and the texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jumpforward.console import visible
from jumpforward.options import Prompt
from shared_runtime.constraint import Constraint

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jumpforward.compare_command import Row

_BAR_WIDTH = 48
# How a token can come beside being sampled, and how many were offered for it; a column for each that some row has.
_OTHER_WAYS = ("jumped", "forced", "drafted", "accepted")
_VALID = {True: "yes", False: "NO", None: "-"}


def comparison_view(prompt: Prompt, constraint: Constraint | None, rows: Sequence[Row], *,
                    unicode: bool) -> list[RenderableType]:
    """Everything `compare` shows, part by part, for rich to print."""
    from rich.text import Text

    asked = prompt.text if prompt.messages is None else prompt.messages[-1]["content"]
    head = Text.assemble(("prompt      ", "bold"), visible(asked or ""), "\n", ("constraint  ", "bold"),
                         "none" if constraint is None else visible(constraint.text), "\n")
    return [head, _table(rows, unicode), Text(), _bars(rows, unicode), Text(), _texts(rows)]


def _table(rows: Sequence[Row], unicode: bool) -> RenderableType:
    from rich import box
    from rich.table import Table

    ways = ["sampled", *(way for way in _OTHER_WAYS if any(row.counts.get(way, 0) for row in rows))]
    table = Table(box=box.SIMPLE_HEAD if unicode else box.ASCII, pad_edge=False, collapse_padding=True)
    table.add_column("stage", no_wrap=True)
    for name in ("passes", "tokens", *ways, "compile\nms", "mask\nms", "total\nms"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("finish", no_wrap=True)
    table.add_column("valid", no_wrap=True)
    for row in rows:
        if row.error is not None:
            table.add_row(label(row), *["-"] * (5 + len(ways)), "refused", "-")
            continue
        table.add_row(
            label(row), str(row.counts["forward_passes"]), str(len(row.token_ids)),
            *(str(row.counts[way]) for way in ways), f"{row.ms['compile']:.1f}",
            f"{row.ms['mask_per_step']:.2f}", f"{row.ms['total']:.0f}", row.finish_reason, _VALID[row.valid])
    return table


def label(row: Row) -> str:
    """The row's name: stage, and what of its settings is not the stage's own way."""
    parts = [str(row.stage)]
    if row.overlap == "on":
        parts.append("overlap")
    if row.backend_jump != "none":
        parts.append(row.backend_jump)
    name = "+".join(parts)
    return name if row.backend is None else f"{name} {row.backend}"


def _bars(rows: Sequence[Row], unicode: bool) -> RenderableType:
    """Forward passes as bars: the number that no machine changes."""
    from rich.text import Text

    served = [row for row in rows if row.error is None]
    most = max(row.counts["forward_passes"] for row in served)
    width = max(len(label(row)) for row in served)
    lines = Text("forward passes\n", style="bold")
    for row in served:
        passes = row.counts["forward_passes"]
        length = max(1, round(_BAR_WIDTH * passes / most))
        lines.append(f"{label(row):<{width}}  ")
        lines.append(("█" if unicode else "#") * length, style="cyan")
        lines.append(f" {passes}\n")
    lines.rstrip()
    return lines


def _texts(rows: Sequence[Row]) -> RenderableType:
    """Each text once, with the rows that gave it, and why a row refused."""
    from rich.text import Text

    by_text: dict[str, list[str]] = {}
    for row in rows:
        if row.error is None:
            by_text.setdefault(row.text or "", []).append(label(row))
    page = Text()
    for text, labels in by_text.items():
        page.append(f"{', '.join(labels)}\n", style="bold")
        page.append(f"{visible(text)}\n")
    for row in rows:
        if row.error is not None:
            page.append(f"{label(row)} refused: {row.error['message']}\n", style="yellow")
    page.rstrip()
    return page
