"""What `jumpforward exercises` prints: results in words, and how far a learner has come."""

from __future__ import annotations

import sys
from pathlib import Path

from jumpforward.console import visible, wants_colour
from jumpforward.exercises.catalogue import Exercise
from jumpforward.exercises.grader import CheckResult
from jumpforward.exercises.workspace import Progress

RED = "At first everything is red: that is how it begins. Each red case tells you one thing to do."


def tell(result: CheckResult) -> None:
    """The result in words: what passes, the first case that does not, and what to do then."""
    number, failure = result.exercise.number, result.first_failure
    print(f"\n{number}. {result.exercise.title}")
    for case in result.cases:
        if case.message is None:
            print(f"  {_coloured('ok', '32')}    {case.name}")
    if failure is None:
        print(f"Done in {len(result.cases)} cases. Now read why: jumpforward exercises solution {number}")
        return
    others = sum(case.message is not None for case in result.cases) - 1
    print(f"  {_coloured('FAIL', '31')}  {failure.name}\n        {visible(failure.message or '')}")
    if others > 0:
        print(f"        ({others} more fail; begin with this one)")
    if result.stopped is not None and failure.message != result.stopped:
        print(f"  then  {visible(result.stopped)}")
    if result.printed.strip():
        print("  printed by your code:\n" + "\n".join(f"    {visible(line)}" for line in
                                                      result.printed.strip().splitlines()[-10:]))
    print(f"{_passed(result)} of {len(result.planned)} cases pass. Help: jumpforward exercises hint {number}, "
          f"or show {number}")


def _passed(result: CheckResult) -> int:
    return sum(case.message is None for case in result.cases)


def _coloured(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if wants_colour(sys.stdout) else text


def mark(exercise: Exercise, progress: Progress, unicode: bool) -> str:
    """Done, seen without having passed, or neither."""
    if exercise.slug in progress.done:
        return "✓" if unicode else "x"
    return "~" if exercise.slug in progress.given_up else ""


def bar(done: int, total: int, unicode: bool) -> str:
    """How far, as a bar and in numbers."""
    full, empty = ("█", "░") if unicode else ("#", ".")
    filled = 20 * done // max(1, total)
    return f"{full * filled}{empty * (20 - filled)} {done} of {total} done"


def short(path: Path) -> str:
    """The path as one would type it in the clone."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
