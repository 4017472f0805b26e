"""`jumpforward exercises`: write a part of a real stage yourself, and have it graded by the product's own tests."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from jumpforward.console import print_rich, speaks_unicode, visible
from jumpforward.exercises.catalogue import Exercise, all_exercises, find_exercise
from jumpforward.exercises.grader import CheckResult, Grader, missing_packages
from jumpforward.exercises.verify import verify
from jumpforward.exercises.workspace import DEFAULT, Workspace
from jumpforward.exercises_view import RED, bar, mark, short, tell
from jumpforward.exit_codes import INTERRUPTED, OK, REQUEST_ERROR
from jumpforward.help import Command, Group, examples
from shared_runtime.errors import ConfigError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Answers = Annotated[Path, typer.Option(
    "--answers", metavar="DIR", help="Where your answers are.", show_default="my_exercises")]
Which = Annotated[str | None, typer.Argument(
    metavar="[N]", help="An exercise, by number or name.", show_default="the one you are at, or the first not done")]
One = Annotated[str, typer.Argument(metavar="N", help="An exercise, by number or name.")]

exercises_app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode="rich", epilog=examples(
    "exercises next", "exercises watch", "exercises check 1"))


@exercises_app.command("list", cls=Command)
def list_exercises(answers: Answers = DEFAULT, as_json: AsJson = False) -> int:
    """List the exercises: minutes, difficulty, and which are done."""
    exercises, progress = all_exercises(), Workspace(answers).progress()
    if as_json:
        _print_json([{**_described(one), "done": one.slug in progress.done} for one in exercises])
        return OK
    from rich import box
    from rich.table import Table
    from rich.text import Text

    unicode = speaks_unicode(sys.stdout)
    table = Table(box=box.SIMPLE_HEAD if unicode else box.ASCII, pad_edge=False)
    for name in ("", "N", "exercise", "stage", "minutes", "difficulty"):
        table.add_column(name, justify="right" if name in ("N", "minutes") else "left", no_wrap=name != "exercise")
    for one in exercises:
        stage = ", ".join(map(str, one.stages)) or "loop"
        table.add_row(mark(one, progress, unicode), str(one.number), Text(one.title), stage, str(one.minutes),
                      one.difficulty)
    print_rich(table, Text(bar(len(progress.done & {one.slug for one in exercises}), len(exercises), unicode)),
               Text("Any order will do. `jumpforward exercises next` begins, `show`, `hint` and `watch` help."))
    return OK


@exercises_app.command("next", cls=Command)
def next_exercise(which: Which = None, answers: Answers = DEFAULT) -> int:
    """Begin an exercise: its page, and a file for you to write in."""
    workspace, exercises = Workspace(answers), all_exercises()
    exercise = _chosen(which, exercises, workspace)
    if exercise is None:
        print("All exercises are done.")
        return OK
    _begin(exercise, workspace)
    fresh = workspace.prepare(exercise, exercises)
    print(exercise.text("README.md").rstrip())
    print(f"\n{'Write in' if fresh else 'Go on in'} {short(workspace.answer(exercise))}, then run:\n"
          f"  jumpforward exercises watch {exercise.number}     (or check {exercise.number}, once)\n{RED}")
    return OK


@exercises_app.command("check", cls=Command)
def check(
    which: Which = None,
    answers: Answers = DEFAULT,
    as_json: AsJson = False,
    gradescope: Annotated[Path | None, typer.Option(
        "--gradescope", metavar="FILE", help="Run every case and write Gradescope's results.json.")] = None,
) -> int:
    """Check an answer: the visible tests, and when they pass, the larger set for grading."""
    workspace, exercises = Workspace(answers), all_exercises()
    exercise = _chosen(which, exercises, workspace)
    if exercise is None:
        print("All exercises are done.")
        return OK
    if which is not None and gradescope is None and not as_json:
        _begin(exercise, workspace)
    _must_have_packages(exercise)
    with Grader() as grader:
        result = grader.check(exercise, answers, every_case=gradescope is not None)
    if gradescope is not None:
        try:
            gradescope.write_text(json.dumps(result.as_gradescope(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write the results: {error.strerror}", where=str(gradescope),
                              fix="name a file in a folder that there is") from None
    if as_json:
        _print_json(result.as_dict())
    else:
        tell(result)
    if gradescope is None:
        _note(result, workspace)
    return OK if result.passed else REQUEST_ERROR


@exercises_app.command("watch", cls=Command)
def watch(which: Which = None, answers: Answers = DEFAULT) -> int:
    """Check again whenever you save; goes on to the next exercise when one is done. Ctrl-C ends it."""
    workspace, exercises = Workspace(answers), all_exercises()
    try:
        with Grader() as grader:
            watch_changes(workspace, exercises, which, grader, lambda: time.sleep(0.2))
    except KeyboardInterrupt:
        return INTERRUPTED
    return OK


def watch_changes(workspace: Workspace, exercises: Sequence[Exercise], which: str | None, grader: Grader,
                  wait: Callable[[], object]) -> None:
    """Check an exercise at each change of its files until it is done, then the next one.

    Args:
        which: the first exercise; None for the first that is not done.
        wait: called between two looks at the files.
    """
    while (exercise := _chosen(which, exercises, workspace)) is not None:
        which = None
        _begin(exercise, workspace)
        _must_have_packages(exercise)
        if workspace.prepare(exercise, exercises):
            page, file = short(exercise.folder / "README.md"), short(workspace.answer(exercise))
            print(f"\nRead {page}, and write in {file}.\n{RED}")
        seen: object = None
        while True:
            now = workspace.saved()
            if now != seen:
                seen = now
                result = grader.check(exercise, workspace.folder)
                tell(result)
                _note(result, workspace)
                if result.passed:
                    break
                print(f"watching {short(workspace.folder)}; save to check again, Ctrl-C ends", flush=True)
            wait()
    print("All exercises are done.")


@exercises_app.command("hint", cls=Command)
def hint(which: Which = None, answers: Answers = DEFAULT) -> int:
    """Show the next hint: first a nudge, then the idea, then a sketch."""
    workspace, exercises = Workspace(answers), all_exercises()
    progress = workspace.progress()
    exercise = _chosen(which, exercises, workspace)
    if exercise is None:
        print("All exercises are done.")
        return OK
    hints = exercise.hints()
    count = min(progress.hints.get(exercise.slug, 0) + 1, len(hints))
    print("\n\n".join(f"Hint {index} of {len(hints)}\n{text}" for index, text in enumerate(hints[:count], 1)))
    progress.hints[exercise.slug] = count
    workspace.save(progress)
    return OK


@exercises_app.command("show", cls=Command)
def show(which: Which = None, answers: Answers = DEFAULT, as_json: AsJson = False) -> int:
    """Show what your part makes of a few inputs, beside what is expected."""
    workspace, exercises = Workspace(answers), all_exercises()
    exercise = _chosen(which, exercises, workspace) or exercises[0]
    _must_have_packages(exercise)
    with Grader() as grader:
        rows, message = grader.picture(exercise, answers)
    same = message is None and all(row.yours == row.expected for row in rows)
    if as_json:
        _print_json({"number": exercise.number, "slug": exercise.slug, "rows": [asdict(row) for row in rows],
                     "same": same, "stopped": message})
        return OK if same else REQUEST_ERROR
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if speaks_unicode(sys.stdout) else box.ASCII, pad_edge=False)
    for name in ("", "looked at", "yours", "expected"):
        table.add_column(name, overflow="fold")  # what is cut off may be what differs
    for row in rows:
        equal = row.yours == row.expected
        cells = (Text(visible(text)) for text in (row.what, row.yours, row.expected))
        table.add_row("" if equal else "differs", *cells, style=None if equal else "yellow")
    print_rich(Text(f"{exercise.number}. {exercise.title}"), table)
    if message is not None:
        print(f"then: {message}")
    return OK if same else REQUEST_ERROR


@exercises_app.command("reset", cls=Command)
def reset(which: One, answers: Answers = DEFAULT) -> int:
    """Put the starter in the place of your answer; the answer is kept beside it."""
    workspace, exercises = Workspace(answers), all_exercises()
    exercise = find_exercise(exercises, which)
    kept = workspace.reset(exercise)
    workspace.prepare(exercise, exercises)
    progress = workspace.progress()
    progress.done.discard(exercise.slug)
    progress.hints.pop(exercise.slug, None)
    workspace.save(progress)
    print(f"{short(workspace.answer(exercise))} is the starter again"
          + (f"; what you had is in {short(kept)}" if kept else "")
          + ("; adapters.py takes the part from another place, and still does" if workspace.moved(exercise) else ""))
    return OK


@exercises_app.command("solution", cls=Command)
def solution(
    which: One,
    answers: Answers = DEFAULT,
    give_up: Annotated[bool, typer.Option("--give-up", help="Show it although you have not passed.")] = False,
) -> int:
    """Show a solution and why it is one, after you have passed."""
    workspace = Workspace(answers)
    exercise, progress = find_exercise(all_exercises(), which), workspace.progress()
    if exercise.slug not in progress.done and not give_up:
        raise ConfigError(f"exercise {exercise.number} is not done yet", where="solution",
                          fix=f"try `jumpforward exercises hint {exercise.number}`, or add --give-up")
    if exercise.slug not in progress.done:
        progress.given_up.add(exercise.slug)
        workspace.save(progress)
    print(exercise.text("solution.py").rstrip())
    print(f"\n{exercise.text('explanation.md').rstrip()}")
    return OK


@exercises_app.command("verify", cls=Command)
def verify_exercises(which: Which = None) -> int:
    """For authors: starters fail, solutions pass, each known mistake fails for its own reason."""
    exercises = all_exercises()
    chosen = exercises if which is None else [find_exercise(exercises, which)]
    bad = 0
    with Grader() as grader:
        for exercise in chosen:
            _must_have_packages(exercise)
            problems = list(verify(exercise, grader))
            bad += bool(problems)
            print(f"{'FAIL' if problems else 'ok  '}  {exercise.number:2} {exercise.slug}", flush=True)
            for problem in problems:
                print(f"        {problem}")
    return REQUEST_ERROR if bad else OK


def _chosen(which: str | None, exercises: Sequence[Exercise], workspace: Workspace) -> Exercise | None:
    """The one that is named, or the one that was begun last, or the first that is not done; None when all are."""
    if which is not None:
        return find_exercise(exercises, which)
    progress = workspace.progress()
    left = [one for one in exercises if one.slug not in progress.done]
    return next((one for one in left if one.slug == progress.current), left[0] if left else None)


def _begin(exercise: Exercise, workspace: Workspace) -> None:
    """From now on this is the one that commands without a number mean."""
    progress = workspace.progress()
    if progress.current != exercise.slug:
        progress.current = exercise.slug
        workspace.save(progress)


def _must_have_packages(exercise: Exercise) -> None:
    lacking = missing_packages(exercise)
    if lacking:
        raise ConfigError(f"it needs {', '.join(lacking)}", where=f"exercise {exercise.number}",
                          fix="run `make setup-dev`")


def _note(result: CheckResult, workspace: Workspace) -> None:
    """Remember a pass. A later failure takes nothing away: what is done is done."""
    if result.passed:
        progress = workspace.progress()
        progress.done.add(result.exercise.slug)
        workspace.save(progress)


def _described(exercise: Exercise) -> dict[str, object]:
    return {"number": exercise.number, "slug": exercise.slug, "title": exercise.title, "minutes": exercise.minutes,
            "difficulty": exercise.difficulty, "stages": list(exercise.stages), "part": exercise.part,
            "replaces": exercise.replaces, "prerequisites": list(exercise.prerequisites)}


def _print_json(value: Mapping[str, object] | Iterable[Mapping[str, object]]) -> None:
    json.dump(value, sys.stdout, ensure_ascii=False)
    sys.stdout.write("\n")

