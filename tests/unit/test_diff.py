"""`jumpforward diff`: what differs is shown, what does not is named, and the folders are the only source."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

import stages
from jumpforward.cli import main
from jumpforward.diff_command import FileChange, diff_lines, folder_changes, stat_lines
from stages import all_stages

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    older, newer = tmp_path / "older", tmp_path / "newer"
    for folder in (older, newer):
        (folder / "sub" / "__pycache__").mkdir(parents=True)
        (folder / "sub" / "__pycache__" / "x.pyc").write_bytes(b"\x00" + folder.name.encode())
        (folder / "same.py").write_text("a\nb\n", encoding="utf-8")
    (older / "gone.py").write_text("old\n", encoding="utf-8")
    (newer / "sub" / "new.py").write_text("new\nlines\n", encoding="utf-8")
    (older / "changed.py").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (newer / "changed.py").write_text("one\n2\nthree\nfour\n", encoding="utf-8")
    return older, newer


def test_each_file_is_changed_new_gone_or_unchanged(folders: tuple[Path, Path]) -> None:
    changes = folder_changes(*folders)
    assert [(change.name, change.unchanged, change.counts()) for change in changes] == [
        ("changed.py", False, (2, 1)), ("gone.py", False, (0, 1)), ("same.py", True, (0, 0)),
        ("sub/new.py", False, (2, 0))]
    lines = list(diff_lines(changes, "older", "newer"))
    assert "-two" in lines
    assert "+2" in lines
    assert "--- older/gone.py" in lines
    assert lines.count("+++ /dev/null") == 1
    assert lines.count("--- /dev/null") == 1
    assert lines[-1] == "unchanged: same.py"
    assert not any("pycache" in line for line in lines)


def test_stat_counts_the_lines(folders: tuple[Path, Path]) -> None:
    lines = list(stat_lines(folder_changes(*folders), "older", "newer"))
    assert re.fullmatch(r"changed\.py +\+2 +-1  \++-+", lines[0])
    assert lines[1].endswith("gone in newer")
    assert lines[2].endswith("new in newer")
    assert lines[3] == "3 files differ between older and newer: 4 lines added, 2 taken away"


def test_an_emptied_file_differs_from_one_that_is_gone() -> None:
    assert not FileChange("a", "x\n", "").unchanged
    assert not FileChange("a", "", None).unchanged
    assert FileChange("a", "", None).counts() == (0, 0)


def test_a_stage_does_not_differ_from_itself(capsys: Capture) -> None:
    assert main(["diff", "1", "stage1_copied_fsm"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert shown.startswith("unchanged: ")
    assert "fsm_cache.py" in shown


@pytest.mark.parametrize("older", [spec.id for spec in all_stages()][:-1])
def test_neighbours_differ_and_what_history_left_alone_is_unchanged(older: int, capsys: Capture) -> None:
    root = Path(stages.__file__).parent
    names = [stages.get_stage(number).name for number in (older, older + 1)]
    assert main(["diff", str(older), str(older + 1)]) == 0
    shown = capsys.readouterr().out
    unchanged = re.findall(r"^unchanged: (.+)$", shown, re.MULTILINE)
    listed = set(unchanged[0].split(", ")) if unchanged else set()
    for path in (root / names[0]).glob("*.py"):
        other = root / names[1] / path.name
        same = other.exists() and other.read_bytes() == path.read_bytes()
        assert (path.name in listed) == same
        assert (f"diff {names[0]}/{path.name} " in shown) != same
    assert main(["diff", str(older), str(older + 1), "--stat"]) == 0
    assert re.search(rf"^\d+ files differ between {names[0]} and {names[1]}", capsys.readouterr().out, re.MULTILINE)


def test_colours_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    changes = [FileChange("a.py", "x\n", "y\n")]
    monkeypatch.setattr("jumpforward.diff_command.folder_changes", lambda older, newer: changes)
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    assert main(["diff", "1", "1"]) == 0
    assert "\x1b[32m+y\x1b[0m\n" in terminal.getvalue()
    assert "\x1b[31m-x\x1b[0m\n" in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    monkeypatch.setattr("sys.stdout", plain)
    assert main(["diff", "1", "1"]) == 0
    assert "\x1b" not in plain.getvalue()


@pytest.mark.parametrize("words", [["9", "1"], ["1", "9"], ["1"], []])
def test_a_stage_that_is_not_there_is_a_usage_error(words: list[str], capsys: Capture) -> None:
    assert main(["diff", *words]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")
