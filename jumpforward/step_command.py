"""`jumpforward step`: a request, or a recording of one, turn by turn in the terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from jumpforward.console import ProgressLine, print_rich
from jumpforward.decoding_options import DecodingOptions, ExecutionOptions, GrammarOptions
from jumpforward.default_request import PROMPT, REGEX
from jumpforward.exit_codes import OK
from jumpforward.options import ConstraintOptions, EngineOptions, PromptOptions, SamplingOptions
from jumpforward.stepper.recording import Recording, load, record
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StepRequest:
    """Everything `step` was asked for; `what` is a prompt or a file that `--save` wrote."""

    what: str | None
    stage: str
    save: Path | None
    plain: bool
    pipeline: bool = False
    engine: EngineOptions = field(default_factory=EngineOptions)
    constraint: ConstraintOptions = field(default_factory=ConstraintOptions)
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    how: PromptOptions = field(default_factory=PromptOptions)
    grammar: GrammarOptions = field(default_factory=GrammarOptions)
    decoding: DecodingOptions = field(default_factory=DecodingOptions)
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)


def step(request: StepRequest) -> int:
    """Record or load, then play; without a terminal, or with `--plain`, print the turns.

    Raises:
        JumpforwardError: the request cannot be served, or the file is no recording.
    """
    if request.pipeline:
        return _show_pipeline(request)
    recording = _recording(request)
    if request.save is not None:
        recording.save(request.save)
        print(f"saved {len(recording.frames)} turns to {request.save}", file=sys.stderr)
    elif request.plain or not sys.stdout.isatty() or not sys.stdin.isatty():
        print_turns(recording)
    else:
        _play(recording)
    return OK


def _recording(request: StepRequest) -> Recording:
    if request.what is not None and request.what.endswith(".json"):
        return load(Path(request.what))
    constraint = request.constraint.constraint()
    prompt = request.how.prompt(request.what if request.what is not None else PROMPT)
    if request.what is None and constraint is None:
        constraint = Constraint.regex(REGEX)
    options = request.execution.complete(request.decoding.complete(request.grammar.stage_options()))
    config = request.engine.config(request.stage, backend=request.grammar.backend, options=options,
                                   overlap=request.execution.overlaps)
    progress = ProgressLine()
    progress(f"loading {request.engine.model}", 0, 0)
    try:
        return record(config, prompt.text, messages=prompt.messages, constraint=constraint,
                      sampling=request.sampling.params(), progress=progress)
    finally:
        progress.clear()


def _show_pipeline(request: StepRequest) -> int:
    from jumpforward.pipeline_view import pipeline_view
    from jumpforward.stepper.pipeline import pipeline_of
    from shared_runtime.constrain.regex_dialect import escape_choice
    from shared_runtime.model.locate import locate_model
    from shared_runtime.tokenizer import Tokenizer

    constraint = request.constraint.constraint() or Constraint.regex(REGEX)
    if constraint.kind not in ("regex", "choice"):
        raise ConfigError(f"{constraint.kind} has no automaton", where="--pipeline", fix="give --regex or --choice")
    pattern = constraint.source if constraint.kind == "regex" else escape_choice(constraint.choices)
    tokenizer = Tokenizer.from_folder(locate_model(request.engine.model, None))
    pipeline = pipeline_of(pattern, tokenizer.vocabulary)
    print_rich(*pipeline_view(pipeline))
    return OK


def _play(recording: Recording) -> None:
    try:
        from jumpforward.stepper.terminal import Stepper
    except ImportError as error:
        raise ConfigError(f"the terminal stepper needs textual: {error}", where="step",
                          fix="pip install -e '.[step]', or use --plain") from error
    Stepper(recording).run()


def print_turns(recording: Recording) -> None:
    """The turns as plain text, for a pipe or a screen reader."""
    from rich.text import Text

    stage = recording.stage
    parts = [Text(f"stage {stage['id']}: {stage['title']}\n", style="bold")]
    for index, frame in enumerate(recording.frames):
        lines = Text.assemble((f"turn {index + 1} of {len(recording.frames)}\n", "bold"),
                              "".join(f"  {line}\n" for line in frame.says))
        if frame.here:
            lines.append(f"  {frame.here}\n", style="yellow")
        parts.append(lines)
    print_rich(*parts)
