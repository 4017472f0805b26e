"""`jumpforward history`, as a person types it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from history.timeline import cited_commits, timeline
from jumpforward import history_command
from jumpforward.cli import main
from tests.history.synthetic import Synthetic

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "history"
SCHEMA = json.loads((ROOT / "jumpforward/schemas/history.schema.json").read_text())


@pytest.fixture
def shape_of_removal(synthetic: Synthetic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_command, "REMOVAL", synthetic.by_name["removal"])
    monkeypatch.setattr(history_command, "timeline", lambda: tuple(synthetic.rows))
    monkeypatch.setattr(history_command, "cited_commits", tuple)


def _json(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main(["history", *words, "--json"]) == code
    value = json.loads(capsys.readouterr().out)
    schema = {**SCHEMA, "$ref": f"#/$defs/{words[0]}"}
    Draft202012Validator(schema).validate(value)
    return value


def test_the_timeline_needs_no_clone(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(_json(capsys, "timeline")) == 116
    rows = _json(capsys, "timeline", "--stage", "2", "--kind", "fix")
    assert [row["hash"] for row in rows] == [row.hash for row in timeline() if (row.stage, row.kind) == (2, "fix")]
    assert main(["history", "timeline", "--stage", "1"]) == 0
    shown = capsys.readouterr().out
    assert "22085081bb" in shown
    assert "4 of 116 commits" in shown


@pytest.mark.parametrize("words", [["tree"], ["removal"], ["verify"], ["count", "x", "--at", "HEAD"], ["touched"],
                                   ["show", "HEAD", "x"], ["diff", "a", "b"], ["timeline", "--path", "x"],
                                   ["plot", "lines"]])
def test_without_a_clone_the_others_say_how_to_get_one(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "git clone https://github.com/sgl-project/sglang" in captured.err
    assert captured.err.count("\n") == 1


def test_a_tree_names_what_it_lacks_and_shows_the_rest(synthetic: Synthetic, capsys: pytest.CaptureFixture[str],
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_REPO", str(synthetic.path))
    value = _json(capsys, "tree", "--at", "v0.1.12", "--at", "nosuch", "--at", "HEAD", code=1)
    assert [tree["ref"] for tree in value["trees"]] == ["v0.1.12", "HEAD"]
    assert list(value["unknown"]) == ["nosuch"]
    assert main(["history", "tree", "--at", "nosuch", "--at", "HEAD"]) == 1
    captured = capsys.readouterr()
    assert "jump_forward.py" in captured.out
    assert "warning" in captured.err
    assert "nosuch" in captured.err
    assert main(["history", "tree", "--at", "nosuch"]) == 1
    assert "nosuch" in capsys.readouterr().err


def test_showing_lines(synthetic: Synthetic, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--repo", str(synthetic.path)]
    path = "python/sglang/srt/constrained/fsm.py"
    assert main(["history", "show", "HEAD~4", f"{path}:2-3", *where]) == 0
    assert capsys.readouterr().out == "    2  two\n    3  three\n"
    assert main(["history", "show", "HEAD~4", f"{path}:2", *where]) == 0
    assert capsys.readouterr().out == "    2  two\n"
    assert main(["history", "show", "HEAD~4", path, *where]) == 0
    assert capsys.readouterr().out.count("\n") == 3
    for lines in ("0", "4", "3-2", "1-9"):
        assert main(["history", "show", "HEAD~4", f"{path}:{lines}", *where]) == 1
        assert "has 3 lines" in capsys.readouterr().err


def test_counting_before_and_after(synthetic: Synthetic, capsys: pytest.CaptureFixture[str]) -> None:
    value = _json(capsys, "count", "jump_forward", "--at", "HEAD~1", "--at", "HEAD", "--repo", str(synthetic.path))
    assert [sum(one["files"].values()) for one in value["counts"]] == [5, 2]


@pytest.mark.usefixtures("shape_of_removal")
def test_what_the_removal_deleted(synthetic: Synthetic, capsys: pytest.CaptureFixture[str]) -> None:
    value = _json(capsys, "removal", "--repo", str(synthetic.path))
    assert [(file["path"].rpartition("/")[2], file["deleted"]) for file in value["files"]] == [
        ("fsm.py", 3), ("scheduler.py", 3)]


@pytest.mark.usefixtures("shape_of_removal")
def test_verify_says_what_is_true_and_exits_accordingly(synthetic: Synthetic, capsys: pytest.CaptureFixture[str],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    value = _json(capsys, "verify", "--repo", str(synthetic.path))
    assert value["tally"] == {"confirmed": 5, "differs": 0, "absent": 0}
    assert main(["history", "verify", "--repo", str(synthetic.path)]) == 0
    capsys.readouterr()
    monkeypatch.setattr(history_command, "timeline", lambda: (*synthetic.rows, *timeline()[:1]))
    value = _json(capsys, "verify", "--repo", str(synthetic.path), code=1)
    assert value["tally"] == {"confirmed": 5, "differs": 0, "absent": 1}
    assert main(["history", "verify", "--repo", str(synthetic.path)]) == 1
    assert "absent" in capsys.readouterr().out


@pytest.mark.usefixtures("shape_of_removal")
def test_touched_counts_layers(synthetic: Synthetic, capsys: pytest.CaptureFixture[str]) -> None:
    value = _json(capsys, "touched", "--kind", "removal", "--repo", str(synthetic.path))
    assert [one["layers"] for one in value] == [{"constrained": 1, "managers": 1}]
    assert main(["history", "touched", "--kind", "removal", "--repo", str(synthetic.path)]) == 0
    assert "median 2 layers and 2 files" in capsys.readouterr().out


def test_a_name_in_the_clone_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.history.synthetic import build

    made = build(tmp_path / "sglang")
    (made.path / "python/sglang/srt/constrained/\x1b[31mred.py").write_text("x\x1b[2J\n")
    made.commit("odd", "odd", "2026-01-01", {})
    made.repo.close()
    where = ["--repo", str(made.path)]
    for words in (["tree", "--at", "HEAD"], ["diff", "HEAD~1", "HEAD"], ["count", "x", "--at", "HEAD"]):
        assert main(["history", *words, *where]) == 0
        assert "\x1b" not in capsys.readouterr().out


def test_the_figures_are_shown_without_a_clone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "plot"]) == 0
    shown = capsys.readouterr().out
    months = [line for line in shown.splitlines() if line.startswith("20")]
    assert sum(len(line.split()[1]) for line in months) == 116


def test_the_pictures_carry_their_numbers_as_text(synthetic: Synthetic, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vl_convert")
    assert main(["history", "plot", "--out", str(tmp_path / "plots"), "--repo", str(synthetic.path)]) == 0
    written = [Path(line) for line in capsys.readouterr().out.split()]
    assert [path.name for path in written] == ["commits_by_month.svg", "additions_deletions.svg",
                                               "constrained_lines.svg"]
    for path in written:
        svg = path.read_text()
        assert "<title>" in svg
        assert 'role="img"' in svg
        assert "http" not in svg.replace("http://www.w3.org", ""), "nothing is loaded from elsewhere"
        assert path.with_suffix(".txt").read_text().strip()
    assert "2025-03: 4 lines in 2 files" in written[2].with_suffix(".txt").read_text()


def _verified() -> dict[str, Any]:
    value: dict[str, Any] = json.loads((DATA / "verified.json").read_text(encoding="utf-8"))
    return value


def test_what_was_verified_is_what_is_told() -> None:
    """Who changes the timeline verifies it again, against a full clone."""
    told = _verified()
    facts = b"".join((DATA / name).read_bytes() for name in ("timeline.json", "commits.json"))
    assert told["facts"] == hashlib.sha256(facts).hexdigest()
    commits = [row.hash for row in timeline()] + [one.hash for one in cited_commits() if one.in_clone]
    assert told["tally"] == {"confirmed": len(commits), "differs": 0, "absent": 0}


@pytest.mark.clone
def test_the_timeline_is_true_of_a_real_clone(capsys: pytest.CaptureFixture[str]) -> None:
    import os

    if not os.environ.get("SGLANG_REPO"):
        pytest.skip("SGLANG_REPO names no clone of SGLang")
    value = _json(capsys, "verify")
    assert value["tally"] == _verified()["tally"]
    counts = _json(capsys, "count", "jump_forward", "--at", "935cda944b^", "--at", "935cda944b")["counts"]
    managers = [sum(number for path, number in one["files"].items() if "/managers/" in path) for one in counts]
    assert managers == list(_verified()["jump_forward_lines_in_managers"].values())
