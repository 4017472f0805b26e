"""What `check` shows a person: texts with where they fail, or the cases that are not right and a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jumpforward.console import visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from shared_runtime.conformance.verdict import CaseVerdict, TextVerdict

_STYLE = {"right": "green", "clear_error": "green", "listed_deviation": "yellow", "not_applicable": "dim",
          "WRONG": "bold red", "accepted": "green", "incomplete": "yellow", "rejected": "red"}
_COLUMNS = ("right", "clear_error", "listed_deviation", "not_applicable", "WRONG")
_LONGEST_TEXT = 160


def text_lines(verdicts: Sequence[CaseVerdict]) -> list[RenderableType]:
    """What became of each text, or why there is no answer; stages and backends that agree to the word share a part."""
    from rich.text import Text

    bodies = [_body(verdict) for verdict in verdicts]
    agreeing: dict[str, list[int]] = {}
    for index, body in enumerate(bodies):
        agreeing.setdefault(body.plain, []).append(index)
    page = Text()
    for indices in agreeing.values():
        targets = ", ".join(f"{verdicts[index].stage} {verdicts[index].backend}" for index in indices)
        page.append(f"stage {targets}\n", style="bold").append(bodies[indices[0]])
    page.rstrip()
    return [page]


def _body(verdict: CaseVerdict) -> Text:
    from rich.text import Text

    body = Text()
    if verdict.error is not None:
        lacks = verdict.verdict == "not_applicable"
        body.append(f"  {'not in this stage' if lacks else 'grammar error'}: ", style="yellow")
        body.append(f"{visible(str(verdict.error['message']))}\n")
    for one in verdict.texts:
        body.append(f"  {_outcome(one)}", style=_STYLE[one.check.got])
        body.append(f"  {shown(one.text)}\n")
        if one.check.reason is not None:
            body.append(f"      {visible(one.check.reason)}\n", style="dim")
    if verdict.deviation is not None:
        body.append(f"  {verdict.deviation}\n", style="yellow")
    return body


def case_lines(verdicts: Sequence[CaseVerdict]) -> list[RenderableType]:
    """The cases that are listed, and those that are wrong, with the texts that show it."""
    from rich.text import Text

    page = Text()
    for verdict in verdicts:
        if verdict.verdict not in ("WRONG", "listed_deviation"):
            continue
        page.append(f"{visible(verdict.id)}  stage {verdict.stage} {verdict.backend}  ")
        page.append(f"{verdict.verdict}\n", style=_STYLE[verdict.verdict])
        told = [verdict.deviation, None if verdict.error is None else str(verdict.error["message"])]
        told += [f"{shown(one.text)} must be {one.expected}ed and is {_outcome(one)}"
                 + (f": {one.check.reason}" if one.check.reason else "")
                 for one in verdict.texts if verdict.verdict == "WRONG"
                 and (not one.right or not one.check.spellings_agree)]
        page.append("".join(f"    {visible(line)}\n" for line in told if line))
    return [page] if page else []


def summary_table(verdicts: Sequence[CaseVerdict], *, unicode: bool) -> RenderableType:
    """Verdicts counted, a row for each stage and backend."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD if unicode else box.ASCII, pad_edge=False)
    table.add_column("stage", no_wrap=True)
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        counts.setdefault(f"{verdict.stage} {verdict.backend}", Counter())[verdict.verdict] += 1
    for label, row in counts.items():
        table.add_row(label, *[str(row[name]) for name in _COLUMNS])
    return table


def shown(text: str) -> str:
    """A text as one short line: quoted, its middle left out when it is long."""
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT // 2]}...{text[-_LONGEST_TEXT // 4:]}"
    return visible(repr(text))


def _outcome(one: TextVerdict) -> str:
    check = one.check
    if check.got == "rejected":
        return f"rejected at byte {check.byte}" if check.byte is not None else "rejected"
    return check.got
