"""Every exercise keeps its promises, and `verify` would say so if one did not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jumpforward.exercises.catalogue import ROOT, Exercise, all_exercises, read_exercise
from jumpforward.exercises.grader import CheckResult, Grader
from jumpforward.exercises.verify import verify
from jumpforward.museum import get_row
from shared_runtime.errors import ConfigError

EXERCISES = all_exercises()
each_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.slug)


@each_exercise
def test_an_exercise_keeps_its_promises(exercise: Exercise, grader: Grader) -> None:
    """The starter fails, the solution passes both sets, each known mistake fails for its own reason."""
    assert list(verify(exercise, grader)) == []


@each_exercise
def test_a_known_mistake_that_is_of_the_museum_names_a_row(exercise: Exercise) -> None:
    for wrong in exercise.wrong:
        if wrong.museum is not None:
            assert get_row(wrong.museum).number == wrong.museum
        text = wrong.file.read_text(encoding="utf-8")
        assert {int(row) for row in re.findall(r"rows\.row_(\d+)_", text)} <= {wrong.museum or 0}, wrong.file


def test_many_known_mistakes_are_of_the_museum() -> None:
    assert sum(wrong.museum is not None for exercise in EXERCISES for wrong in exercise.wrong) >= len(EXERCISES)


def test_every_page_names_commands_and_museum_rows_that_there_are() -> None:
    for exercise in EXERCISES:
        for name in ("README.md", "explanation.md", "hints.md"):
            text = exercise.text(name)
            for row in re.findall(r"museum show (\d+)", text):
                get_row(int(row))
            for number in re.findall(r"exercises (?:check|show|watch|hint) (\d+)", text):
                assert int(number) == exercise.number, f"{exercise.slug}/{name}"
            for path in re.findall(r"`((?:stages|shared_runtime|tests|jumpforward|history|docs)/[\w/.]+)`", text):
                assert (ROOT / path).exists(), f"{exercise.slug}/{name}: {path}"


def test_every_commit_that_a_page_names_is_in_the_history() -> None:
    known = (ROOT / "history/timeline.json").read_text(encoding="utf-8")
    known += (ROOT / "history/commits.json").read_text(encoding="utf-8")
    for exercise in EXERCISES:
        for commit in re.findall(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{10}\b", exercise.text("explanation.md")):
            assert commit in known, f"{exercise.slug}: {commit}"


@pytest.mark.slow
def test_the_exercises_are_typed(tmp_path: Path) -> None:
    """mypy takes no folder whose name begins with a digit, so it reads a copy.

    Run where `make lint` runs, it finds there what is known of the product already.
    """
    copies = tmp_path / "graded"
    for exercise in EXERCISES:
        shutil.copytree(exercise.folder, copies / f"e{exercise.folder.name}",
                        ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(copies), *map(str, sorted((ROOT / "exercises").glob("*.py")))],
        cwd=ROOT, env={"MYPYPATH": str(tmp_path), "PATH": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# what verify finds


def copied(exercise: Exercise, tmp_path: Path) -> Path:
    folder = tmp_path / exercise.folder.name
    shutil.copytree(exercise.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def spoil(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize(("change", "said"), [
    (lambda folder: (folder / "hints.md").unlink(), "hints.md is missing"),
    (lambda folder: (folder / "notes.txt").touch(), "notes.txt is a stray file"),
    (lambda folder: (folder / "wrong" / "another.py").touch(), "wrong/another.py is a stray file"),
    (lambda folder: (folder / "explanation.md").write_text("# Why\n"), "explanation.md must have the headings"),
    (lambda folder: (folder / "starter.py").write_text("x = 1\n"), "starter.py does not define"),
    (lambda folder: spoil(folder / "starter.py", "TODO", "to do"), "starter.py must have one TODO"),
    (lambda folder: (folder / "wrong" / "first_byte.py").unlink(), "wrong/first_byte.py is missing"),
    (lambda folder: spoil(folder / "explanation.md", "22085081bb", "the first"), "must name a commit"),
    (lambda folder: spoil(folder / "README.md", "# 1. ", "# 2. "), "README.md must begin with: # 1. "),
    (lambda folder: spoil(folder / "starter.py", "Exercise 1", "Exercise one"), "starter.py must begin with"),
    (lambda folder: spoil(folder / "README.md", "About 30 minutes", "Some minutes"), "README.md must say: About 30"),
])
def test_verify_names_what_lacks_and_what_strays(
        change: Callable[[Path], object], said: str, tmp_path: Path, grader: Grader) -> None:
    folder = copied(EXERCISES[0], tmp_path)
    change(folder)
    assert any(said in problem for problem in verify(read_exercise(folder), grader))


def test_verify_sees_a_starter_that_passes_and_a_mistake_that_does(tmp_path: Path, grader: Grader) -> None:
    folder = copied(EXERCISES[0], tmp_path)
    right = (folder / "solution.py").read_text(encoding="utf-8")
    (folder / "starter.py").write_text(right + "\n# TODO: nothing\n", encoding="utf-8")
    shutil.copy(folder / "solution.py", folder / "wrong" / EXERCISES[0].wrong[0].file.name)
    problems = "\n".join(verify(read_exercise(folder), grader))
    assert "the starter passes" in problems
    assert f"{EXERCISES[0].wrong[0].file.name} passes" in problems


def test_verify_sees_two_cases_of_one_name(grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    check = grader.check

    def twice(*words: Any, **more: Any) -> CheckResult:
        result = check(*words, **more)
        result.planned.append(result.planned[0])
        return result

    monkeypatch.setattr(grader, "check", twice)
    name = check(EXERCISES[0], EXERCISES[0].solution).planned[0][1]
    assert f"two cases of the visible set are called {name!r}" in list(verify(EXERCISES[0], grader))


def test_verify_sees_a_mistake_that_fails_for_another_reason(grader: Grader) -> None:
    exercise = EXERCISES[0]
    first, *rest = exercise.wrong
    other = replace(exercise, wrong=(replace(first, says="the moon is full"), *rest))
    assert any("fails for another reason than 'the moon is full'" in problem for problem in verify(other, grader))


def test_verify_sees_a_solution_that_fails_and_a_starter_without_the_symptom(tmp_path: Path, grader: Grader) -> None:
    """The solution and the starter of the bug to find change places."""
    exercise = next(one for one in EXERCISES if one.slug == "find_the_neighbour")
    folder = copied(exercise, tmp_path)
    shutil.copy(exercise.starter, folder / "solution.py")
    (folder / "starter.py").write_text(exercise.text("solution.py") + "\n# TODO: find the bug\n", encoding="utf-8")
    problems = "\n".join(verify(read_exercise(folder), grader))
    for said in ("the starter passes:", "the starter passes 'the complaint", "the solution fails:",
                 "the picture of the solution differs"):
        assert said in problems


@pytest.mark.parametrize(("line", "field"), [
    ("minutes = 30", "minutes"), ('difficulty = "easy"', "difficulty"), ("[[wrong]]", "mend the TOML"),
])
def test_metadata_that_lacks_is_named(line: str, field: str, tmp_path: Path) -> None:
    folder = copied(EXERCISES[0], tmp_path)
    spoil(folder / "exercise.toml", line, "[[" if line == "[[wrong]]" else "")
    with pytest.raises(ConfigError, match=re.escape(field)):
        read_exercise(folder)


@pytest.mark.parametrize(("old", "new", "said"), [
    ("minutes = 30", "minutes = 5", "minutes: 5 is less than"),
    ("minutes = 30", "minutes = 30\nsurplus = 1", "surplus"),
    ('"easy"', '"trivial"', "difficulty: 'trivial'"),
])
def test_verify_names_metadata_that_no_schema_allows(
        old: str, new: str, said: str, tmp_path: Path, grader: Grader) -> None:
    folder = copied(EXERCISES[0], tmp_path)
    spoil(folder / "exercise.toml", old, new)
    assert any(said in problem for problem in verify(read_exercise(folder), grader))


def test_two_exercises_of_one_number_are_an_error(tmp_path: Path) -> None:
    folder = copied(EXERCISES[0], tmp_path)
    shutil.copytree(folder, tmp_path / f"{EXERCISES[0].number:02}_another")
    with pytest.raises(ConfigError, match="two exercises have the number"):
        all_exercises(tmp_path)
