"""How a pattern becomes masks and jumps, for the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jumpforward.console import speaks_unicode, visible
from jumpforward.stepper.pipeline import Pipeline, PipelineStep

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def pipeline_view(pipeline: Pipeline) -> list[RenderableType]:
    """Each step: what it does, how large it came out, how long it took, and some of what it made."""
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"from {visible(pipeline.pattern)} to masks and jumps\n", style="bold")]
    for number, step in enumerate(pipeline.steps, 1):
        parts.append(Text.assemble((f"{number}. {step.name}", "bold cyan"), f": {step.sizes_text}",
                                   (f"  {step.ms:.2f} ms", "dim"), f"\n   {step.text}"))
        if step.rows:
            parts.append(rows_table(step, in_ascii=not speaks_unicode(sys.stdout)))
    return parts


def rows_table(step: PipelineStep, in_ascii: bool = False) -> Table:
    """What a step made, as far as it is shown; `in_ascii` for a terminal without box characters."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ASCII if in_ascii else box.SIMPLE, pad_edge=False)
    for name in step.rows[0]:
        table.add_column(name, overflow="fold")
    for row in step.rows[1:]:
        table.add_row(*(Text(visible(cell)) for cell in row))
    return table
