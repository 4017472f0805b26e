"""The walk finds the first thing that is wrong in a trace, and finds nothing in one that is right."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.site.page import RECORDINGS
from scripts.walk_trace import findings, main

Turns = list[dict[str, Any]]


@pytest.fixture
def turns() -> Turns:
    text = (RECORDINGS / "walk.jsonl").read_text(encoding="utf-8")
    return copy.deepcopy([json.loads(line) for line in text.splitlines()])


def forget_the_grammar(turns: Turns) -> None:
    for turn in turns:
        turn["has_grammar"] = False


def skip_a_mask(turns: Turns) -> None:
    turns[2]["grammars_filled"] = turns[2]["grammars_filled"][1:]


def agree_only_once(turns: Turns) -> None:
    turns[0]["tp_token_sync"] = True


def fill_too_early(turns: Turns) -> None:
    late = next(event for event in turns[3]["events"] if event["name"] == "results_processed")
    next(event for event in turns[4]["events"] if event["name"] == "mask_ready")["seq"] = late["seq"] - 1


def allow_nothing(turns: Turns) -> None:
    turns[5]["requests"][0]["n_allowed"] = 0


def end_in_error(turns: Turns) -> None:
    turns[-1]["requests"][0]["finish"] = "error"


def test_a_sound_trace_has_nothing_to_look_at(turns: Turns) -> None:
    assert [one.suspect for one in findings(turns)] == [False] * 5


@pytest.mark.parametrize(("spoil", "question"), [
    (forget_the_grammar, 0), (skip_a_mask, 1), (agree_only_once, 2), (fill_too_early, 3), (allow_nothing, 4),
    (end_in_error, 4),
])
def test_what_is_wrong_is_found_by_its_question(spoil: Callable[[Turns], None], question: int, turns: Turns) -> None:
    spoil(turns)
    assert [one.suspect for one in findings(turns)].index(True) == question


def test_the_exit_code_says_whether_there_is_something_to_look_at(turns: Turns, tmp_path: Path,
                                                                   capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, turns)), encoding="utf-8")
    assert main([str(path)]) == 0
    allow_nothing(turns)
    path.write_text("\n".join(map(json.dumps, turns)), encoding="utf-8")
    assert main([str(path)]) == 1
    assert "LOOK HERE" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["no json", "[1]", '{"step": 1}', '"x"'])
def test_a_file_that_is_no_trace_is_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text, encoding="utf-8")
    assert main([str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
