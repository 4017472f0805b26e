"""What `check` is to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

_CHECK = "Check"


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Texts for a grammar of the command line, or a file of cases; and whose masks decide."""

    stage: Annotated[str, typer.Option(
        "--stage", rich_help_panel=_CHECK, metavar="N|all", help="Whose masks decide.")] = "all"
    text: Annotated[list[str], typer.Option(
        "--text", rich_help_panel=_CHECK, metavar="TEXT",
        help="A text to look at; may be repeated.")] = field(default_factory=list)
    cases: Annotated[Path | None, typer.Option(
        "--cases", rich_help_panel=_CHECK, metavar="FILE.jsonl",
        help="Judge a file of grammars and texts, one JSON object a line.")] = None
    all_tokenizations: Annotated[bool, typer.Option(
        "--all-tokenizations", rich_help_panel=_CHECK,
        help="Also spell each text in other tokens: byte by byte, and cut at random.")] = False
    model: Annotated[str, typer.Option(
        "--model", rich_help_panel=_CHECK, metavar="NAME", help="Whose tokenizer; no weights are loaded.")] = "embedded"
