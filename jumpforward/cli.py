"""The command line: options in, an exit code out. What a command does is in its own module."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from jumpforward import __version__
from jumpforward.bench_command import bench_app
from jumpforward.check_options import CheckOptions
from jumpforward.console import tolerate_any_text
from jumpforward.decoding_options import DecodingOptions, ExecutionOptions, GrammarOptions
from jumpforward.exercises_command import exercises_app
from jumpforward.exit_codes import INTERRUPTED, OK, READER_GONE, REQUEST_ERROR, USAGE_ERROR
from jumpforward.help import Command, Group, examples, name_options
from jumpforward.history_command import history_app
from jumpforward.museum_command import museum_app
from jumpforward.option_groups import expand_groups
from jumpforward.options import ConstraintOptions, EngineOptions, PromptOptions, SamplingOptions
from jumpforward.rank_options import RankOptions
from shared_runtime.errors import ConfigError, JumpforwardError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(
    name="jumpforward", cls=Group, epilog=examples("compare", "run --help"), add_completion=False,
    no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]})

app.add_typer(bench_app, name="bench", help="Measure the stages, their peers and the mask engines alone.")
app.add_typer(exercises_app, name="exercises", help="Write a part of a stage yourself, graded by the real tests.")
app.add_typer(history_app, name="history", help="Read the real commits, from data and from a clone of SGLang.")
app.add_typer(museum_app, name="museum", help="Show the bugs that five generations had.")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"jumpforward {__version__}")
        raise typer.Exit


@app.callback()
def _options_of_all(
    show_version: Annotated[bool, typer.Option(
        "--version", is_eager=True, callback=_show_version, help="Print the version and exit.")] = False,
) -> None:
    """Five generations of constrained decoding over one runtime."""


@app.command(cls=Command, epilog=examples(
    'run --choice yes --choice no "Is a whale a fish?"', 'run --stage 5 --json-object "Describe a ship as JSON."'))
@expand_groups
def run(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to ask; '-' reads it from standard input.")],
    engine: EngineOptions,
    constraint: ConstraintOptions,
    sampling: SamplingOptions,
    how: PromptOptions,
    grammar: GrammarOptions,
    decoding: DecodingOptions,
    execution: ExecutionOptions,
    ranks: RankOptions,
    context: typer.Context,
    stage: Annotated[str, typer.Option(
        "--stage", rich_help_panel="Engine", metavar="N", help="Which generation decodes, by number or name.")] = "1",
    trace: Annotated[Path | None, typer.Option(
        "--trace", metavar="FILE", help="Write every step as a JSON line.")] = None,
    as_json: AsJson = False,
) -> int:
    """Run one request on one stage: the text as it comes, then what it cost."""
    from jumpforward import run_command

    return run_command.run(run_command.RunRequest(
        prompt=prompt, stage=stage, as_json=as_json, trace=trace, engine=engine, constraint=constraint,
        sampling=sampling, how=how, grammar=grammar, decoding=decoding, execution=execution, ranks=ranks,
        words=context.obj))


@app.command(cls=Command, epilog=examples(
    'compare', 'compare --choice sloop --choice ketch "Which has two masts?"'))
@expand_groups
def compare(
    engine: EngineOptions,
    constraint: ConstraintOptions,
    sampling: SamplingOptions,
    how: PromptOptions,
    grammar: GrammarOptions,
    decoding: DecodingOptions,
    prompt: Annotated[str | None, typer.Argument(
        metavar="PROMPT", help="What to ask; '-' reads it from standard input.", show_default="a ship's card")] = None,
    as_json: AsJson = False,
) -> int:
    """Run one request through every stage and set the results side by side."""
    from jumpforward import compare_command

    return compare_command.compare(compare_command.CompareRequest(
        prompt=prompt, as_json=as_json, engine=engine, constraint=constraint, sampling=sampling, how=how,
        grammar=grammar, decoding=decoding))


@app.command(cls=Command, epilog=examples(
    'step --stage 2', 'step --stage 1 --regex "(sloop|schooner)" "Name a rig."', "step --stage 2 --save ship.json",
    "step ship.json", 'step --pipeline --regex "ab(cde)?"'))
@expand_groups
def step(
    engine: EngineOptions,
    constraint: ConstraintOptions,
    sampling: SamplingOptions,
    how: PromptOptions,
    grammar: GrammarOptions,
    decoding: DecodingOptions,
    execution: ExecutionOptions,
    what: Annotated[str | None, typer.Argument(
        metavar="[PROMPT|FILE.json]", help="What to ask, or a recording that --save wrote.",
        show_default="a ship's card")] = None,
    stage: Annotated[str, typer.Option(
        "--stage", rich_help_panel="Engine", metavar="N", help="Which generation decodes, by number or name.")] = "1",
    save: Annotated[Path | None, typer.Option(
        "--save", metavar="FILE.json", help="Write the recording instead of playing it.")] = None,
    plain: Annotated[bool, typer.Option(
        "--plain", help="Print the turns as text; so also without a terminal.")] = False,
    pipeline: Annotated[bool, typer.Option(
        "--pipeline", help="Show instead how the regex becomes masks and jumps, with sizes and times.")] = False,
) -> int:
    """Step through a decoder turn by turn: forward and back, to the next mask, jump, draft or rejection."""
    from jumpforward import step_command

    return step_command.step(step_command.StepRequest(
        what=what, stage=stage, save=save, plain=plain, pipeline=pipeline, engine=engine, constraint=constraint,
        sampling=sampling, how=how, grammar=grammar, decoding=decoding, execution=execution))


@app.command(cls=Command, epilog=examples(
    'check --regex "(ab)+" --text abab --text aba', 'check --stage 5 --backend llguidance --json-object --text "{}"'))
@expand_groups
def check(
    constraint: ConstraintOptions,
    grammar: GrammarOptions,
    what: CheckOptions,
    as_json: AsJson = False,
) -> int:
    """Say whether texts are in a grammar's language, by the stages' real masks."""
    from jumpforward import check_command

    return check_command.check(check_command.CheckRequest(
        what=what, as_json=as_json, constraint=constraint, grammar=grammar))


@app.command(cls=Command, epilog=examples(
    'diff 1 2', 'diff --stat 4 5'))
def diff(
    older: Annotated[str, typer.Argument(metavar="A", help="A stage, by number or name.")],
    newer: Annotated[str, typer.Argument(metavar="B", help="The stage to compare it with.")],
    stat: Annotated[bool, typer.Option("--stat", help="Only count the lines of each file.")] = False,
) -> int:
    """Show what history changed between two stages' folders."""
    from jumpforward.diff_command import show_diff

    return show_diff(older, newer, stat=stat)


@app.command(cls=Command)
def stages(as_json: AsJson = False) -> int:
    """Show what each stage could do."""
    from jumpforward.stages_command import show_stages

    return show_stages(as_json)


@app.command(cls=Command)
def doctor(
    measure: Annotated[bool, typer.Option(
        "--measure", help="Measure which --dtype and --threads are fastest here; about half a minute.")] = False,
    as_json: AsJson = False,
) -> int:
    """Check this machine and say how to mend what is wrong."""
    from jumpforward.doctor import show_doctor

    return show_doctor(as_json, measure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the words after the program's name; None takes those of the process.

    Returns:
        0 served, 1 the request cannot be served, 2 the command line is wrong, 130 ended by Ctrl-C, 141 the
        reader of the output went away.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:  # closed by the caller (`>&-`): what is said then goes nowhere
            setattr(sys, name, os.fdopen(os.dup2(os.open(os.devnull, os.O_WRONLY), number), "w"))
    tolerate_any_text(sys.stdout)
    tolerate_any_text(sys.stderr)
    try:
        code = app(words, prog_name="jumpforward", standalone_mode=False, obj=words)
        sys.stdout.flush()
        if code == INTERRUPTED:
            print("interrupted", file=sys.stderr)
        return code if isinstance(code, int) else OK
    except JumpforwardError as error:
        name_options(error, _command_of(words)[1])
        usage = isinstance(error, ConfigError)
        return _fail(error.as_dict(), USAGE_ERROR if usage else REQUEST_ERROR, words)
    except typer.TyperException as error:
        said, (path, parameters) = _plain(error.format_message()), _command_of(words)
        if not said:  # a group without a command: its help has been printed
            return USAGE_ERROR
        message = f"{said} (see {path} --help)"
        if "unexpected extra argument" in message and any(one.name == "prompt" for one in parameters):
            message += "; put quotes around a prompt of several words"
        return _fail({"type": "UsageError", "message": message, "offset": None}, error.exit_code, words)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            return _fail({"type": type(error).__name__, "offset": None,
                          "message": f"cannot write the output: {error.strerror}"}, REQUEST_ERROR, words)
        return _reader_gone()
    except SystemExit:
        # A broken pipe inside a command comes out of typer as SystemExit, and nothing else does in this mode.
        return _reader_gone()


def _plain(message: str) -> str:
    """What the parser says, without what only its authors need."""
    return message.rstrip(".").split(", unable to parse")[0].replace("Input should be", "it should be")


def _reader_gone() -> int:
    """Nobody reads the output any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes it once more while it ends; that must not fail again
    return READER_GONE


def _command_of(words: Sequence[str]) -> tuple[str, list[Any]]:
    """The full name of the command that was tried, or of the innermost group where there is none; its parameters."""
    path, command = "jumpforward", typer.main.get_command(app)
    for word in words:
        if not isinstance(command, TyperGroup) or word not in command.commands:
            break
        path, command = f"{path} {word}", command.commands[word]
    return path, command.params


def _fail(error: dict[str, object], code: int, words: Sequence[str]) -> int:
    """Print one line on standard error, or JSON on standard output when `--json` was asked for."""
    if "--json" in words:
        print(json.dumps({"error": error}, ensure_ascii=False))
    else:
        print(f"error: {' '.join(str(error['message']).split())}", file=sys.stderr)
    return code
