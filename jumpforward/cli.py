"""The command line: options in, an exit code out. What a command does is in its own module."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from jumpforward import __version__
from jumpforward.check_options import CheckOptions
from jumpforward.console import tolerate_any_text
from jumpforward.decoding_options import DecodingOptions, ExecutionOptions, GrammarOptions
from jumpforward.exit_codes import INTERRUPTED, OK, READER_GONE, REQUEST_ERROR, USAGE_ERROR
from jumpforward.history_command import history_app
from jumpforward.museum_command import museum_app
from jumpforward.option_groups import expand_groups
from jumpforward.options import ConstraintOptions, EngineOptions, PromptOptions, SamplingOptions
from jumpforward.rank_options import RankOptions
from shared_runtime.errors import ConfigError, JumpforwardError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(
    name="jumpforward", add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
    rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]})

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


@app.command()
@expand_groups
def run(
    prompt: Annotated[str, typer.Argument(help="What to ask; '-' reads it from standard input.")],
    engine: EngineOptions,
    constraint: ConstraintOptions,
    sampling: SamplingOptions,
    how: PromptOptions,
    grammar: GrammarOptions,
    decoding: DecodingOptions,
    execution: ExecutionOptions,
    ranks: RankOptions,
    context: typer.Context,
    stage: Annotated[int, typer.Option("--stage", rich_help_panel="Engine", help="Which generation decodes.")] = 1,
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


@app.command()
@expand_groups
def compare(
    engine: EngineOptions,
    constraint: ConstraintOptions,
    sampling: SamplingOptions,
    how: PromptOptions,
    grammar: GrammarOptions,
    decoding: DecodingOptions,
    prompt: Annotated[str | None, typer.Argument(
        help="What to ask; '-' reads it from standard input.", show_default="a ship's card")] = None,
    as_json: AsJson = False,
) -> int:
    """Run one request through every stage and set the results side by side."""
    from jumpforward import compare_command

    return compare_command.compare(compare_command.CompareRequest(
        prompt=prompt, as_json=as_json, engine=engine, constraint=constraint, sampling=sampling, how=how,
        grammar=grammar, decoding=decoding))


@app.command()
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


@app.command()
def diff(
    older: Annotated[str, typer.Argument(metavar="A", help="A stage, by number or name.")],
    newer: Annotated[str, typer.Argument(metavar="B", help="The stage to compare it with.")],
    stat: Annotated[bool, typer.Option("--stat", help="Only count the lines of each file.")] = False,
) -> int:
    """Show what history changed between two stages' folders."""
    from jumpforward.diff_command import show_diff

    return show_diff(older, newer, stat=stat)


@app.command()
def stages(as_json: AsJson = False) -> int:
    """Show what each stage could do."""
    from jumpforward.stages_command import show_stages

    return show_stages(as_json)


@app.command()
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
        usage = isinstance(error, ConfigError)
        return _fail(error.as_dict(), USAGE_ERROR if usage else REQUEST_ERROR, words)
    except typer.TyperException as error:
        if not words:  # the help is what was asked for, and it has been printed
            return USAGE_ERROR
        message = f"{error.format_message().rstrip('.')} (see {_help_of(words)})"
        if "unexpected extra argument" in message:
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


def _reader_gone() -> int:
    """Nobody reads the output any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes it once more while it ends; that must not fail again
    return READER_GONE


def _help_of(words: Sequence[str]) -> str:
    """The command that lists the options of what was tried."""
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    return f"jumpforward {words[0]} --help" if words[0] in known else "jumpforward --help"


def _fail(error: dict[str, object], code: int, words: Sequence[str]) -> int:
    """Print one line on standard error, or JSON on standard output when `--json` was asked for."""
    if "--json" in words:
        print(json.dumps({"error": error}, ensure_ascii=False))
    else:
        print(f"error: {' '.join(str(error['message']).split())}", file=sys.stderr)
    return code
