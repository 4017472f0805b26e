"""Tables on a page of any width: what does not fit beside the rows' names goes into a further table below."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Column:
    """A title (it may have several lines), a cell for each row, and whether the cells are numbers."""

    title: str
    cells: Sequence[str]
    is_number: bool = True


def tables(names: Column, groups: Sequence[Sequence[Column]], *, width: int, unicode: bool) -> list[Table]:
    """One table when everything fits into `width`, else at least one for each group; all repeat the rows' `names`."""
    whole = _table(names, [column for group in groups for column in group], unicode)
    if _width(whole) <= width:
        return [whole]
    found = []
    for group in groups:
        rest = list(group)
        while rest:
            fitting = [count for count in range(1, len(rest) + 1)
                       if _width(_table(names, rest[:count], unicode)) <= width]
            count = max(fitting, default=1)
            found.append(_table(names, rest[:count], unicode))
            del rest[:count]
    return found


def _table(names: Column, columns: Sequence[Column], unicode: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if unicode else box.ASCII, pad_edge=False, collapse_padding=True)
    for column in (names, *columns):
        table.add_column(column.title, justify="right" if column.is_number else "left", no_wrap=True)
    for cells in zip(names.cells, *(column.cells for column in columns), strict=True):
        table.add_row(*[Text(cell) for cell in cells])
    return table


def _width(table: Table) -> int:
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(file=io.StringIO(), width=10_000)
    return Measurement.get(console, console.options, table).maximum
