"""`jumpforward museum`: the bugs of five generations, as a list and one by one."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from jumpforward.console import print_rich, speaks_unicode
from jumpforward.exit_codes import OK
from jumpforward.help import Command, Group
from jumpforward.museum import Commit, MuseumRow, all_rows, get_row

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

museum_app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode="rich")


@museum_app.command("list", cls=Command)
def list_rows(as_json: AsJson = False) -> int:
    """List the bugs, with the commit that mended the last of each."""
    if as_json:
        _print_json([row.as_dict() for row in all_rows()])
        return OK
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if speaks_unicode(sys.stdout) else box.ASCII, pad_edge=False)
    table.add_column("row", justify="right")
    table.add_column("stage", no_wrap=True)
    table.add_column("what happened")
    table.add_column("mended", no_wrap=True)
    for row in all_rows():
        last = max(row.found, key=lambda one: one.date, default=None)  # until the last of them some of it was there
        mended = f"{last.date} {last.commit}" if last is not None else "never"
        table.add_row(str(row.number), ", ".join(map(str, row.stages)), Text(row.title), mended)
    print_rich(table, Text(f"{len(all_rows())} rows; jumpforward museum show N tells one of them"))
    return OK


@museum_app.command("show", cls=Command)
def show_row(
    number: Annotated[int, typer.Argument(metavar="N", help="The number of the row.")],
    as_json: AsJson = False,
) -> int:
    """Show one bug: symptom, cause, smallest case, and how to see it."""
    row = get_row(number)
    if as_json:
        _print_json(row.as_dict())
        return OK
    from rich.text import Text

    print_rich(Text(f"{row.number}. {row.title}", style="bold"),
               *[Text.assemble((f"{name:<10}", "cyan"), text) for name, text in _lines(row)])
    return OK


def _lines(row: MuseumRow) -> list[tuple[str, str]]:
    lines = [
        ("stage", ", ".join(map(str, row.stages))),
        ("mended", "; ".join(map(_commit, row.found)) or "never, while this code lived"),
        ("symptom", row.symptom), ("cause", row.cause), ("scenario", row.scenario), ("wrong", row.wrong),
        ("right", row.right), ("invariant", row.invariant), ("evidence", _EVIDENCE[row.evidence]),
        ("see", row.see), ("run", f"{row.command}  (in a clone)"),
    ]
    if row.caused_by:
        lines.insert(2, ("caused by", "; ".join(map(_commit, row.caused_by))))
    if row.not_injectable:
        lines.append(("note", f"no mutation test: {row.not_injectable}"))
    if row.needs:
        lines.append(("needs", ", ".join(row.needs)))
    return lines


_EVIDENCE = {"ran": "the historical code was run and showed it", "read": "concluded from reading the historical code",
             "repair": "told by the commit that repaired it"}


def _commit(commit: Commit) -> str:
    return f"{commit.commit} ({commit.date}{f', #{commit.pr}' if commit.pr else ''})"


def _print_json(value: object) -> None:
    json.dump(value, sys.stdout, ensure_ascii=False)
    sys.stdout.write("\n")
