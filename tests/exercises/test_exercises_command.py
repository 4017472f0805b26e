"""`jumpforward exercises`, as a learner uses it."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import jsonschema
import pytest

from jumpforward import exercises_command
from jumpforward.cli import main
from jumpforward.exercises.catalogue import all_exercises
from jumpforward.exercises.grader import Grader
from jumpforward.exercises.workspace import Workspace
from jumpforward.exercises_command import watch_changes
from jumpforward.result_json import schema_text

Capture = pytest.CaptureFixture[str]
FIRST = all_exercises()[0]
SEEN = {"enum": ["hidden", "after_due_date", "after_published", "visible"]}
FORMAT = {"enum": ["text", "html", "simple_format", "md", "ansi"]}
GRADESCOPE = {
    "type": "object", "additionalProperties": False, "required": ["tests"],
    "properties": {
        "score": {"type": "number"}, "execution_time": {"type": "number"}, "output": {"type": "string"},
        "output_format": FORMAT, "test_output_format": FORMAT, "test_name_format": FORMAT, "visibility": SEEN,
        "stdout_visibility": SEEN, "extra_data": {"type": "object"}, "leaderboard": {"type": "array"},
        "tests": {"type": "array", "minItems": 1, "items": {
            "type": "object", "additionalProperties": False,
            "properties": {
                "score": {"type": "number"}, "max_score": {"type": "number"}, "status": {"enum": ["passed", "failed"]},
                "name": {"type": "string"}, "name_format": FORMAT, "number": {"type": "string"},
                "output": {"type": "string"}, "output_format": FORMAT, "tags": {"type": "array"}, "visibility": SEEN,
                "extra_data": {"type": "object"}}}}}}
"""What gradescope-autograders.readthedocs.io says of results.json."""


def run(capsys: Capture, *words: object) -> tuple[int, str, str]:
    code = main(["exercises", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "mine"


@pytest.fixture
def started(grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find a sandbox that runs already; starting one takes seconds."""
    monkeypatch.setattr(exercises_command, "Grader", lambda: nullcontext(grader))


@pytest.mark.usefixtures("started")
def test_from_the_starter_to_the_solution(folder: Path, capsys: Capture) -> None:
    """Begin, fail, ask for help, pass, read why: the state is in one small file."""
    at = ("--answers", folder)
    code, out, _ = run(capsys, "next", *at)
    assert code == 0
    assert out.startswith("# 1.")
    assert "At first everything is red" in out
    code, out, _ = run(capsys, "check", *at)
    assert code == 1
    assert "not written yet" in out
    assert [run(capsys, "hint", *at)[1].count("Hint") for _ in range(4)] == [1, 2, 3, 3]
    code, _, err = run(capsys, "solution", 1, *at)
    assert (code, "--give-up" in err) == (2, True)
    shutil.copy(FIRST.solution, folder / f"{FIRST.slug}.py")
    code, out, _ = run(capsys, "check", 1, *at)
    assert code == 0, out
    code, out, _ = run(capsys, "solution", FIRST.slug, *at)
    assert code == 0
    assert "## What upstream did" in out
    code, out, _ = run(capsys, "list", *at)
    assert f"1 of {len(all_exercises())} done" in out
    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        "adapters.py", f"{FIRST.slug}.py", "progress.json"}


@pytest.mark.usefixtures("started")
def test_commands_without_a_number_mean_the_exercise_that_was_begun(folder: Path, capsys: Capture) -> None:
    """Any order will do; when it is done, the first that is not comes."""
    at, third = ("--answers", folder), all_exercises()[3]
    run(capsys, "next", third.number, *at)
    title = f"{third.number}. {third.title}"
    assert title in run(capsys, "check", *at)[1]
    assert title in run(capsys, "show", *at)[1]
    assert run(capsys, "hint", *at)[1].strip().endswith(third.hints()[0].splitlines()[-1])
    assert f"# {title}" in run(capsys, "next", *at)[1]
    shutil.copy(third.solution, folder / f"{third.slug}.py")
    assert run(capsys, "check", *at)[0] == 0
    assert f"1. {FIRST.title}" in run(capsys, "next", *at)[1]


@pytest.mark.usefixtures("started")
def test_an_exercise_that_was_not_begun_says_how_to_begin(folder: Path, capsys: Capture) -> None:
    """With and without the adapters of another one."""
    second = all_exercises()[1]
    for _ in range(2):
        code, out, _ = run(capsys, "check", second.number, "--answers", folder)
        assert code == 1
        assert f"`jumpforward exercises next {second.slug}` puts the starter there" in out
        run(capsys, "next", 1, "--answers", folder)


@pytest.mark.usefixtures("started")
def test_json_is_as_its_schema_says(folder: Path, capsys: Capture) -> None:
    schema = json.loads(schema_text("exercises"))
    for words in (("list", "--json"), ("check", 1, "--json"), ("show", 1, "--json")):
        _, out, _ = run(capsys, *words, "--answers", folder)
        jsonschema.validate(json.loads(out), schema)


@pytest.mark.usefixtures("started")
def test_gradescope_gets_every_case_and_a_share(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    results = tmp_path / "results.json"
    folder.mkdir()
    for answer, score in ((FIRST.starter, 0.0), (FIRST.solution, 100.0)):
        shutil.copy(answer, folder / f"{FIRST.slug}.py")
        run(capsys, "check", 1, "--answers", folder, "--gradescope", results)
        data = json.loads(results.read_text(encoding="utf-8"))
        assert data["score"] == score
        assert {test["visibility"] for test in data["tests"]} == {"visible", "after_due_date"}
        assert all(test["status"] == ("passed" if test["score"] else "failed") for test in data["tests"])
        jsonschema.validate(data, GRADESCOPE)
    assert not (folder / "progress.json").exists()


def test_reset_says_when_the_adapters_lead_elsewhere(folder: Path, capsys: Capture) -> None:
    at, adapters = ("--answers", folder), folder / "adapters.py"
    run(capsys, "next", *at)
    assert "adapters.py" not in run(capsys, "reset", 1, *at)[1]
    text = adapters.read_text(encoding="utf-8").replace(f"from {FIRST.slug} import", "from deep.mine import")
    adapters.write_text(text, encoding="utf-8")
    assert "adapters.py takes the part from another place" in run(capsys, "reset", 1, *at)[1]
    assert "adapters.py" not in run(capsys, "reset", 2, *at)[1]


def test_reset_keeps_what_you_had(folder: Path, capsys: Capture) -> None:
    at = ("--answers", folder)
    run(capsys, "next", *at)
    answer = folder / f"{FIRST.slug}.py"
    for text in ("one", "two"):
        answer.write_text(text, encoding="utf-8")
        run(capsys, "reset", 1, *at)
    assert answer.read_bytes() == FIRST.starter.read_bytes()
    assert [(folder / f"{FIRST.slug}.py.{number}").read_text(encoding="utf-8") for number in (1, 2)] == ["one", "two"]


def test_the_learner_may_lay_out_the_code_as_they_like(folder: Path, capsys: Capture) -> None:
    at = ("--answers", folder)
    run(capsys, "next", *at)
    (folder / f"{FIRST.slug}.py").unlink()
    (folder / "deep").mkdir()
    shutil.copy(FIRST.solution, folder / "deep" / "mine.py")
    adapters = folder / "adapters.py"
    text = adapters.read_text(encoding="utf-8").replace(f"from {FIRST.slug} import", "from deep.mine import")
    adapters.write_text(text, encoding="utf-8")
    code, out, _ = run(capsys, "check", 1, *at)
    assert code == 0, out


@pytest.mark.usefixtures("started")
def test_show_sets_yours_beside_what_is_expected(folder: Path, capsys: Capture) -> None:
    at = ("--answers", folder)
    folder.mkdir()
    shutil.copy(FIRST.solution, folder / f"{FIRST.slug}.py")
    code, out, _ = run(capsys, "show", 1, *at)
    assert code == 0
    assert "differs" not in out
    with (folder / f"{FIRST.slug}.py").open("a", encoding="utf-8") as file:
        file.write("\n\nright = token_index\n\n\ndef token_index(table, token_bytes):\n"
                   "    return {state: {} for state in right(table, token_bytes)}\n")
    code, out, _ = run(capsys, "show", 1, *at)
    assert code == 1
    assert "differs" in out


@pytest.mark.usefixtures("started")
def test_a_narrow_picture_cuts_nothing_off(folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    folder.mkdir()
    fourth = all_exercises()[3]
    shutil.copy(fourth.solution, folder / f"{fourth.slug}.py")
    code, out, _ = run(capsys, "show", fourth.number, "--answers", folder)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 60
    assert "…" not in out


def test_a_damaged_state_and_an_unknown_exercise_are_one_line(folder: Path, capsys: Capture) -> None:
    folder.mkdir()
    (folder / "progress.json").write_text("[1", encoding="utf-8")
    for words, said in ((("list",), "progress.json"), (("check", "nosuch"), "1 token_index")):
        code, _, err = run(capsys, *words, "--answers", folder)
        assert code == 2
        assert err.count("\n") == 1
        assert said in err
        (folder / "progress.json").unlink(missing_ok=True)


@pytest.mark.usefixtures("started")
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    """A file is where the folder should be, or there is no folder for the results."""
    (tmp_path / "file").touch()
    for words in (("next",), ("reset", 1), ("hint",)):
        code, _, err = run(capsys, *words, "--answers", tmp_path / "file")
        assert code == 2
        assert "cannot write your answers" in err
        assert err.count("\n") == 1
    code, _, err = run(capsys, "check", 1, "--answers", tmp_path, "--gradescope", tmp_path / "no" / "results.json")
    assert (code, "cannot write the results" in err) == (2, True)


class Enough(Exception):
    """Ends a watch."""


def test_watch_checks_again_when_a_file_is_saved_and_goes_on_to_the_next(
        folder: Path, capsys: Capture, grader: Grader) -> None:
    workspace, exercises = Workspace(folder), all_exercises()
    turns = 0

    def wait() -> None:
        nonlocal turns
        turns += 1
        if turns == 2:
            (folder / ".#token_index.py").symlink_to("learner@machine.1:2")  # Emacs does, while a file is not saved
        if turns == 3:
            (folder / ".#token_index.py").unlink()
            shutil.copy(FIRST.solution, workspace.answer(FIRST))
        if turns == 6:
            raise Enough

    with pytest.raises(Enough):
        watch_changes(workspace, exercises, None, grader, wait)
    out = capsys.readouterr().out
    assert out.count(f"\n1. {FIRST.title}") == 2
    assert "Done in" in out
    assert out.count(f"\n{exercises[1].number}. {exercises[1].title}") == 1
    assert workspace.progress().done == {FIRST.slug}
    assert out.count("At first everything is red") == 2
    assert f"{exercises[1].folder.name}/README.md" in out
