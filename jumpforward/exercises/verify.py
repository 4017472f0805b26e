"""Proves the exercises: starters fail, solutions pass, each known mistake fails for its own reason, all is there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jumpforward.exercises.catalogue import Exercise, metadata_problem
from jumpforward.exercises.grader import Grader

FILES = {"README.md", "starter.py", "hints.md", "solution.py", "explanation.md", "exercise.toml"}
TESTS = {"visible.py", "grading.py"}
HEADINGS = {
    "README.md": ("Goal", "Given", "Contract", "Check it"),
    "explanation.md": ("Why", "What upstream did", "Read on"),
}


def verify(exercise: Exercise, grader: Grader) -> Iterator[str]:
    """What is wrong with an exercise, a line each; nothing for a good one."""
    problems = list(_shape(exercise))
    yield from problems
    if problems:
        return
    starter = grader.check(exercise, exercise.starter, first_failure=exercise.starter_says.startswith("^not written"))
    if starter.passed:
        yield "the starter passes: there is nothing to do"
    elif starter.first_failure is None or not re.search(exercise.starter_says, starter.first_failure.message or ""):
        yield f"the starter does not say {exercise.starter_says!r}: {starter.first_failure}"
    for case in starter.cases:
        if "complaint" in case.name and case.message is None:
            yield f"the starter passes {case.name!r}: the symptom is not there"
    solution = grader.check(exercise, exercise.solution)
    if not solution.passed:
        yield f"the solution fails: {solution.first_failure}"
    if len({name for name, _ in solution.planned}) == 2 and not _grading_is_larger(solution.planned):
        yield "the set for grading is not larger than the visible one"
    for name, twice in sorted({one for one in solution.planned if solution.planned.count(one) > 1}):
        yield f"two cases of the {name} set are called {twice!r}"
    rows, message = grader.picture(exercise, exercise.solution)
    if message is not None or not rows:
        yield f"the solution has no picture: {message}"
    for row in rows:
        if row.yours != row.expected:
            yield f"the picture of the solution differs in {row.what!r}: {row.yours!r}, expected {row.expected!r}"
    for wrong in exercise.wrong:
        failure = grader.check(exercise, wrong.file, first_failure=True).first_failure
        if failure is None or failure.message is None:
            yield f"{wrong.file.name} passes, although {wrong.mistake}"
        elif re.search(wrong.says, failure.message) is None:
            yield f"{wrong.file.name} fails for another reason than {wrong.says!r}: {failure.name}: {failure.message}"


def _grading_is_larger(planned: list[tuple[str, str]]) -> bool:
    sizes = [sum(name == one for one, _ in planned) for name in ("visible", "grading")]
    return sizes[1] > sizes[0]


def _shape(exercise: Exercise) -> Iterator[str]:
    """Files that lack, strays, headings, hints."""
    folder = exercise.folder
    problem = metadata_problem(exercise)
    if problem is not None:
        yield problem
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*")
             if path.is_file() and "__pycache__" not in path.parts}
    wanted = FILES | {f"tests/{name}" for name in TESTS} | {f"wrong/{wrong.file.name}" for wrong in exercise.wrong}
    for name in sorted(wanted - found):
        yield f"{name} is missing"
    for name in sorted(found - wanted - {"tests/common.py", "tests/fakes.py"}):
        yield f"{name} is a stray file"
    if wanted - found:
        return
    for name, headings in HEADINGS.items():
        if tuple(re.findall(r"^## (.+)$", exercise.text(name), re.MULTILINE)) != headings:
            yield f"{name} must have the headings {', '.join(headings)}"
    if not exercise.text("README.md").startswith(f"# {exercise.number}. {exercise.title}\n"):
        yield f"README.md must begin with: # {exercise.number}. {exercise.title}"
    for name in ("starter.py", "solution.py"):  # by this line a learner's file is known in a pull request
        if not exercise.text(name).startswith(f'"""Exercise {exercise.number}: '):
            yield f'{name} must begin with: """Exercise {exercise.number}: '
    paragraphs = exercise.text("README.md").split("\n\n")
    if len(paragraphs) < 2 or " ".join(paragraphs[1].split()) != exercise.summary:
        yield f"below its title, README.md must say: {exercise.summary}"
    upstream = exercise.text("explanation.md").partition("## What upstream did")[2].partition("\n## ")[0]
    if re.search(r"\b(?=[0-9a-f]*[a-f])[0-9a-f]{10}\b", upstream) is None:
        yield "explanation.md must name a commit of upstream's, by the first ten digits of its hash"
    if not all(exercise.hints()):
        yield "a hint is empty"
    for name in ("starter.py", "solution.py"):
        if re.search(rf"^(def|class) {exercise.part}\b", exercise.text(name), re.MULTILINE) is None:
            yield f"{name} does not define {exercise.part}"
    if exercise.text("starter.py").count("TODO") != 1:
        yield "starter.py must have one TODO"
