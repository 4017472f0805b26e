"""What `--help` shows, and how an error names what the help lists."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

from shared_runtime.errors import JumpforwardError

_SETTING = re.compile(r"(?<![-\w])[a-z]+(_[a-z]+)+(?!\w)")


class Command(TyperCommand):
    """A command of the command line."""

    def get_params(self, ctx: Any) -> list[Any]:  # of typer's own parts, which have no public names
        """Options and arguments, the switches without a type."""
        return _plain(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Options and arguments, the switches without a type."""
        return _plain(super().get_params(ctx))


def _plain(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if isinstance(parameter, TyperOption) and parameter.is_flag and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


def examples(*lines: str) -> str:
    """The foot of a help page; each line is a command that can be typed."""
    return "\n\n".join(["Examples:", *(f"  jumpforward {line}" for line in lines)])


def name_options(error: JumpforwardError, parameters: list[Any]) -> None:
    """Let an error of the runtime say `--max-new-tokens` where it says `max_new_tokens`.

    Only the place and the way out are looked at: the message may quote what somebody typed.
    """
    options = {long[2:].replace("-", "_"): long for parameter in parameters for long in parameter.opts
               if long.startswith("--")}
    error.where = options.get(error.where or "", error.where)
    if error.fix is not None:
        error.fix = _SETTING.sub(lambda found: options.get(found[0], found[0]), error.fix)
