"""How a grammar is decoded: the settings of a stage that a request does not carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from shared_runtime.policy import StageOptions

_GRAMMAR = "Grammar"
_EXECUTION = "Execution"


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


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """How the loop runs: what changes the number of passes and their order, in the stages that have a choice."""

    overlap: Annotated[Literal["on", "off"] | None, typer.Option(
        "--overlap", rich_help_panel=_EXECUTION, show_default="off in stage 4, on in stage 5",
        help="Prepare the next pass while this one is computed. In stage 4 it switches jumping off.")] = None
    backend_jump: Annotated[Literal["none", "draft", "force", "force+draft"], typer.Option(
        "--backend-jump", rich_help_panel=_EXECUTION,
        help="What stage 5 does with text that the grammar forces (not in SGLang): offer it as a draft, append it, "
             "or both.")] = "none"
    spec: Annotated[Literal["none", "ngram"], typer.Option(
        "--spec", rich_help_panel=_EXECUTION,
        help="Draft what the prompt or the answer has said before.")] = "none"

    def complete(self, options: StageOptions) -> StageOptions:
        """`options` with these; `overlap` is the engine's."""
        from dataclasses import replace

        return replace(options, backend_jump=self.backend_jump, spec=self.spec)

    @property
    def overlaps(self) -> bool | None:
        """`EngineConfig.overlap`."""
        return None if self.overlap is None else self.overlap == "on"
