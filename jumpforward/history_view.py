"""The tables and bars of `jumpforward history`."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from history.clone import FileChange
from history.figures import Churn, FolderSize, MonthOfStage
from history.layers import LAYERS, Touched
from history.timeline import TimelineRow
from history.verification import Checked, tally
from jumpforward.console import speaks_unicode, visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_BAR = 40
_STAGE_STYLES = {1: "magenta", 2: "blue", 3: "cyan", 4: "green", 5: "yellow"}


def timeline_view(rows: Sequence[TimelineRow], of: int) -> list[RenderableType]:
    """One line a commit."""
    from rich.text import Text

    table = _table("date", "commit", "stage", "kind", ">files", ">+", ">-", "what")
    for row in rows:
        table.add_row(row.date, row.short, str(row.stage), row.kind, str(row.files_changed), str(row.insertions),
                      str(row.deletions), Text(visible(row.title)))
    return [table, Text(f"{len(rows)} of {of} commits; the stage is that of the mechanism, not of the calendar")]


def tree_view(folder: str, trees: Mapping[str, Mapping[str, int | None]],
              commits: Mapping[str, str]) -> list[RenderableType]:
    """Files down, commits across; a number is the file's lines there."""
    from rich.text import Text

    names = [ref if commits[ref].startswith(ref) else f"{ref}\n{commits[ref][:10]}" for ref in trees]
    table = _table("file", *(f">{name}" for name in names))
    for path in sorted({path for files in trees.values() for path in files}):
        name = str(PurePosixPath(path).relative_to(folder)) if path.startswith(folder + "/") else path
        table.add_row(Text(visible(name)), *(_lines(files, path) for files in trees.values()))
    table.add_section()
    table.add_row("lines", *(str(sum(count or 0 for count in files.values())) for files in trees.values()))
    table.add_row("files", *(str(len(files)) for files in trees.values()))
    return [Text(visible(folder), style="bold"), table]


def _lines(files: Mapping[str, int | None], path: str) -> str:
    if path not in files:
        return ""
    count = files[path]
    return "binary" if count is None else str(count)


def removal_view(commit: str, changes: Sequence[FileChange]) -> list[RenderableType]:
    """Per file what a commit took out and put in, and the sums."""
    from rich.text import Text

    table = _table(">deleted", ">added", "file")
    for change in changes:
        table.add_row(_count(change.deleted), _count(change.added), Text(visible(change.path)))
    table.add_section()
    deleted, added = (sum(getattr(change, name) or 0 for change in changes) for name in ("deleted", "added"))
    table.add_row(str(deleted), str(added), f"{len(changes)} files")
    return [Text(f"{commit[:10]} against its parent"), table]


def _count(number: int | None) -> str:
    return "binary" if number is None else str(number)


def count_view(word: str, counts: Mapping[str, Mapping[str, int]]) -> list[RenderableType]:
    """Files down, commits across; a number is how many lines have the word."""
    from rich.text import Text

    table = _table("file", *(f">{ref}" for ref in counts))
    for path in sorted({path for files in counts.values() for path in files}):
        table.add_row(Text(visible(path)), *(str(files.get(path, 0)) for files in counts.values()))
    table.add_section()
    table.add_row("all", *(str(sum(files.values())) for files in counts.values()))
    return [Text(f"lines with {visible(word)}"), table]


def touched_view(found: Sequence[Touched], asked: int) -> list[RenderableType]:
    """Commits down, layers across; then how far a change reached, stage by stage."""
    from rich.text import Text

    used = [layer for layer in LAYERS if any(layer in one.layers for one in found)]
    table = _table("commit", "stage", ">PR", *(f">{layer}" for layer in used))
    for one in sorted(found, key=lambda one: -len(one.layers)):
        table.add_row(one.row.short, str(one.row.stage), f"#{one.row.pr}" if one.row.pr else "",
                      *(str(one.layers.get(layer, "")) for layer in used))
    lines = Text()
    for stage in sorted({one.row.stage for one in found}):
        reach = [len(one.layers) for one in found if one.row.stage == stage]
        files = [sum(one.layers.values()) for one in found if one.row.stage == stage]
        lines.append(f"stage {stage}: {len(reach)} commits, median {statistics.median(reach):g} layers and "
                     f"{statistics.median(files):g} files each\n")
    if len(found) < asked:
        lines.append(f"{asked - len(found)} commits are not in this clone\n", style="yellow")
    lines.rstrip()
    return [table, lines]


def verify_view(checked: Sequence[Checked], head: str) -> list[RenderableType]:
    """Every difference, and the sums."""
    from rich.text import Text

    parts: list[RenderableType] = []
    wrong = [one for one in checked if one.verdict != "confirmed"]
    if wrong:
        table = _table("commit", "verdict", "fact", "here", "in the clone", "what")
        for one in wrong:
            if not one.differences:
                table.add_row(one.hash[:10], one.verdict, "", "", "", Text(visible(one.title)))
            for difference in one.differences:
                table.add_row(one.hash[:10], one.verdict, difference.fact, Text(visible(difference.ours)),
                              Text(visible(difference.clones)), Text(visible(one.title)))
        parts.append(table)
    sums = ", ".join(f"{number} {verdict}" for verdict, number in tally(checked).items())
    parts.append(Text(f"{len(checked)} commits: {sums}; the clone's HEAD is {head[:10]}"))
    return parts


def months_view(months: Sequence[MonthOfStage]) -> list[RenderableType]:
    """A bar a month, one cell a commit, its digit the stage."""
    from rich.text import Text

    lines = Text("commits per month, each by its stage\n", style="bold")
    for month in dict.fromkeys(one.month for one in months):
        lines.append(f"{month}  ", style="default not bold")
        for one in months:
            if one.month == month:
                lines.append(str(one.stage) * one.commits, style=f"not bold {_STAGE_STYLES[one.stage]}")
        lines.append("\n")
    lines.rstrip()
    return [lines, Text()]


def churn_view(churns: Sequence[Churn]) -> list[RenderableType]:
    """Lines added and deleted, per stage and kind."""
    from rich.text import Text

    table = _table("stage", "kind", ">added", ">deleted", "")
    most = max(one.insertions for one in churns)
    for one in churns:
        bars = Text.assemble((_bar(one.insertions, most), "green"), " ", (_bar(one.deletions, most, "-"), "red"))
        table.add_row(str(one.stage), one.kind, str(one.insertions), str(one.deletions), bars)
    return [Text("lines of whole commits; the first one, which added the engine, is left out", style="bold"), table]


def lines_view(sizes: Sequence[FolderSize]) -> list[RenderableType]:
    """The folder's size, month by month."""
    from rich.text import Text

    most = max(size.lines for size in sizes)
    lines = Text("lines in the folder at the end of each month in which it changed\n", style="bold")
    for size in sizes:
        lines.append(f"{size.month}  ", style="default not bold")
        lines.append(_bar(size.lines, most), style="not bold cyan")
        lines.append(f" {size.lines} in {size.files} files\n", style="default not bold")
    lines.rstrip()
    return [lines]


def coloured(line: str) -> str:
    """A line of a unified diff in its colour, for a terminal."""
    if line.startswith(("+++", "---", "diff ", "index ")):
        return f"\x1b[1m{line}\x1b[0m"
    for start, code in (("+", 32), ("-", 31), ("@", 36)):
        if line.startswith(start):
            return f"\x1b[{code}m{line}\x1b[0m"
    return line


def _bar(value: int, most: int, ascii_mark: str = "#") -> str:
    mark = "█" if speaks_unicode(sys.stdout) and ascii_mark == "#" else ascii_mark
    return mark * max(1 if value else 0, round(_BAR * value / max(1, most)))


def _table(*columns: str) -> Table:
    """A table; a column whose name begins with > is set to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD if speaks_unicode(sys.stdout) else box.ASCII, pad_edge=False,
                  collapse_padding=True)
    for name in columns:
        right = name.startswith(">") and len(name) > 1
        table.add_column(name.removeprefix(">") if right else name, justify="right" if right else "left",
                         no_wrap=name in ("date", "commit", "kind"))
    return table
