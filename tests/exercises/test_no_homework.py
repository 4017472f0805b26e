"""The guard of pull requests refuses answers to exercises, and lets authors' changes through."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from jumpforward.exercises.catalogue import ROOT, all_exercises

FIRST = all_exercises()[0]


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    shutil.copytree(FIRST.folder, tmp_path / "exercises" / FIRST.folder.name)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "base")
    return tmp_path


def look(clone: Path) -> tuple[int, str]:
    base = git(clone, "rev-parse", "HEAD").strip()
    git(clone, "add", "-f", ".")
    git(clone, "commit", "-qm", "change")
    done = subprocess.run(["sh", str(ROOT / "scripts/no_homework.sh"), base], cwd=clone, capture_output=True,
                          text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("place", [f"my_exercises/{FIRST.slug}.py", "my_exercises/deep/er.py", "answers/progress.json",
                                   "answers/adapters.py", "some where/mine.py", "mine.py"])
def test_an_answer_is_refused_wherever_it_lies(place: str, clone: Path) -> None:
    path = clone / place
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(FIRST.solution, path)
    code, err = look(clone)
    assert code == 1
    assert place in err


@pytest.mark.parametrize(("place", "text"), [
    (f"mine/{FIRST.slug}.py", "def token_index():\n    ...\n"),
    ("answer.py.1", '"""Exercise 1: what was kept."""\n'),
    ("réponses/à moi.py", '"""Exercise 1: with other letters in its name."""\n'),
])
def test_an_answer_is_refused_also_when_it_is_disguised(place: str, text: str, clone: Path) -> None:
    (clone / place).parent.mkdir(exist_ok=True)
    (clone / place).write_text(text, encoding="utf-8")
    code, err = look(clone)
    assert code == 1
    assert place in err


def test_a_starter_that_was_solved_in_place_is_refused(clone: Path) -> None:
    shutil.copy(FIRST.solution, clone / "exercises" / FIRST.folder.name / "starter.py")
    code, err = look(clone)
    assert code == 1
    assert "solved in place" in err


def test_what_an_author_changes_passes(clone: Path) -> None:
    for path in (FIRST.solution, FIRST.starter):
        target = clone / "exercises" / FIRST.folder.name / path.name
        target.write_text(path.read_text(encoding="utf-8") + "\n# clearer\n", encoding="utf-8")
    (clone / "stages").mkdir()
    for name in ("fsm.py", f"{FIRST.slug}.py"):  # a part of the product may have the name of an exercise about it
        (clone / "stages" / name).write_text('"""An index."""\n', encoding="utf-8")
    assert look(clone) == (0, "")


def test_a_workflow_verifies_the_exercises_with_no_more_rights_than_reading() -> None:
    flow = yaml.safe_load((ROOT / ".github/workflows/exercises.yml").read_text(encoding="utf-8"))
    assert flow["permissions"] == {"contents": "read"}
    assert any(step.get("run", "").endswith("jumpforward exercises verify") for step in flow["jobs"]["verify"]["steps"])


def test_the_workflow_runs_the_guard_with_no_more_rights_than_reading() -> None:
    flow = yaml.safe_load((ROOT / ".github/workflows/no-homework.yml").read_text(encoding="utf-8"))
    assert flow["permissions"] == {"contents": "read"}
    assert any("scripts/no_homework.sh" in step.get("run", "") for step in flow["jobs"]["look"]["steps"])
