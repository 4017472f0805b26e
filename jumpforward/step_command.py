"""`jumpforward step`: a request, or a recording of one, turn by turn in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jumpforward.console import ProgressLine, print_rich
from jumpforward.decoding_request import StageRequest
from jumpforward.default_request import PROMPT, REGEX
from jumpforward.exit_codes import OK
from jumpforward.stepper.recording import Recording, load, record
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError

if TYPE_CHECKING:
    from jumpforward.stepper.pipeline import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest(StageRequest):
    """Everything `step` was asked for; `what` is a prompt or a file that `--save` wrote."""

    what: str | None
    save: Path | None
    plain: bool
    pipeline: bool = False


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
    elif request.plain or not _has_terminal():
        print_turns(recording)
    else:
        _play(recording)
    return OK


def _recording(request: StepRequest) -> Recording:
    if request.what is not None and _names_a_file(request.what):
        return load(Path(request.what))
    constraint = request.constraint.constraint()
    prompt = request.how.prompt(request.what if request.what is not None else PROMPT)
    if request.what is None and constraint is None:
        constraint = Constraint.regex(REGEX)
    sampling = request.sampling.params()
    if sampling.n != 1:
        raise ConfigError("step follows one answer", where="--n", fix="leave it out")
    config = request.config()
    progress = ProgressLine()
    progress(f"loading {request.engine.model}", 0, 0)
    try:
        return record(config, prompt.text, messages=prompt.messages, constraint=constraint,
                      sampling=sampling, progress=progress)
    finally:
        progress.clear()


def _names_a_file(what: str) -> bool:
    """A prompt may end in `.json`, too: then it has more than one word, or there is no such file."""
    return what.endswith(".json") and (len(what.split()) == 1 or Path(what).is_file())


def _show_pipeline(request: StepRequest) -> int:
    from jumpforward.pipeline_view import pipeline_view
    from jumpforward.stepper.pipeline import pipeline_of
    from shared_runtime.constrain.regex.regex_dialect import escape_choice
    from shared_runtime.model.locate import locate_model
    from shared_runtime.tokenizer import Tokenizer

    constraint = request.constraint.constraint() or Constraint.regex(REGEX)
    if constraint.kind not in ("regex", "choice"):
        raise ConfigError(f"{constraint.kind} has no automaton", where="--pipeline", fix="give --regex or --choice")
    pattern = constraint.source if constraint.kind == "regex" else escape_choice(constraint.choices)
    tokenizer = Tokenizer.from_folder(locate_model(request.engine.model, None))
    if request.plain or not _has_terminal():
        print_rich(*pipeline_view(pipeline_of(pattern, tokenizer.vocabulary)))
    else:
        _step_through(pattern, lambda typed: pipeline_of(typed, tokenizer.vocabulary))
    return OK


def _has_terminal() -> bool:
    return sys.stdout.isatty() and sys.stdin.isatty()


def _play(recording: Recording) -> None:
    try:
        from jumpforward.stepper.terminal import Stepper
    except ImportError as error:
        raise _needs_textual(error) from error
    Stepper(recording).run()


def _step_through(pattern: str, compiled: Callable[[str], Pipeline]) -> None:
    try:
        from jumpforward.stepper.pipeline_terminal import PipelineStepper
    except ImportError as error:
        raise _needs_textual(error) from error
    PipelineStepper(pattern, compiled).run()


def _needs_textual(error: ImportError) -> ConfigError:
    return ConfigError(f"the terminal stepper needs textual: {error}", where="step",
                       fix="pip install -e '.[step]', or use --plain")


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
