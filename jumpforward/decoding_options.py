"""How a grammar is decoded: the settings of a stage that a request does not carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from shared_runtime.policy import StageOptions

_GRAMMAR = "Grammar"


@dataclass(frozen=True, slots=True)
class GrammarOptions:
    """Which engine reads the grammar, and how; None leaves the choice to the command."""

    backend: Annotated[str | None, typer.Option(
        "--backend", rich_help_panel=_GRAMMAR, metavar="NAME", show_default="the stage's own",
        help="The grammar engine, in the stages that have a choice: outlines, xgrammar or llguidance.")] = None
    whitespace: Annotated[Literal["compact", "any"] | None, typer.Option(
        "--whitespace", rich_help_panel=_GRAMMAR,
        help="Between JSON tokens: 'compact' is ', ' and ': ', 'any' lets the model choose.")] = None
    strict: Annotated[bool | None, typer.Option(
        "--strict/--no-strict", rich_help_panel=_GRAMMAR,
        help="Refuse a grammar of which the engine would drop a part, instead of warning.")] = None

    def stage_options(self, *, whitespace: Literal["compact", "any"] = "compact",
                      strict: bool = False) -> StageOptions:
        """The options for a stage; the arguments stand for what was not given."""
        from shared_runtime.policy import StageOptions

        return StageOptions(whitespace=self.whitespace or whitespace,
                            strict=strict if self.strict is None else self.strict)


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """What only some stages do: jump, and wait for the end of a reasoning part."""

    no_jump: Annotated[bool, typer.Option(
        "--no-jump", rich_help_panel=_GRAMMAR,
        help="Sample every token, also in the stages that jump (upstream: --disable-jump-forward).")] = False
    min_jump_bytes: Annotated[int | None, typer.Option(
        "--min-jump-bytes", rich_help_panel=_GRAMMAR, metavar="N", show_default="2",
        help="Sample a forced text that is shorter than this.")] = None
    think_end: Annotated[str | None, typer.Option(
        "--think-end", rich_help_panel=_GRAMMAR, metavar="TOKEN",
        help="The answer begins with a reasoning part that this token ends; the grammar starts behind it.")] = None

    def complete(self, options: StageOptions) -> StageOptions:
        """`options` with these.

        Raises:
            ConfigError: a length below 1.
        """
        from dataclasses import replace

        shortest = options.min_jump_bytes if self.min_jump_bytes is None else self.min_jump_bytes
        return replace(options, jump_forward=not self.no_jump, min_jump_bytes=shortest,
                       think_end=self.think_end)
