"""What every command that decodes is asked for, whatever else it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jumpforward.decoding_options import DecodingOptions, ExecutionOptions, GrammarOptions
from jumpforward.options import ConstraintOptions, EngineOptions, PromptOptions, SamplingOptions

if TYPE_CHECKING:
    from shared_runtime.config import EngineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingRequest:
    """The option groups that `run`, `compare` and `step` have in common."""

    engine: EngineOptions = field(default_factory=EngineOptions)
    constraint: ConstraintOptions = field(default_factory=ConstraintOptions)
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    how: PromptOptions = field(default_factory=PromptOptions)
    grammar: GrammarOptions = field(default_factory=GrammarOptions)
    decoding: DecodingOptions = field(default_factory=DecodingOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRequest(DecodingRequest):
    """And those of a command that runs on one stage, named by number or package."""

    stage: str
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)

    def config(self, trace: Path | None = None) -> EngineConfig:
        """The engine's settings.

        Raises:
            ConfigError: one that cannot work here.
        """
        options = self.execution.complete(self.decoding.complete(self.grammar.stage_options()))
        return self.engine.config(self.stage, trace, backend=self.grammar.backend, options=options,
                                  overlap=self.execution.overlaps)
