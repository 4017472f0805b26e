"""`python -m tests.museum N` shows a row to people: what breaks, with its symptom, and what holds."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jumpforward.museum import get_row
from tests.museum.__main__ import main, visit
from tests.museum.bench import Bench, Broken, hold
from tests.museum.exhibit import Exhibit
from tests.museum.exhibits import all_exhibits, specimen

ROOT = Path(__file__).resolve().parents[2]


def exhibit_of(row: int) -> Exhibit[Any]:
    return next(exhibit for exhibit in all_exhibits() if exhibit.row == row)


@pytest.mark.parametrize("row", [10, 33, 66])
def test_a_visit_tells_what_breaks_and_what_holds(row: int, bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    exhibit = exhibit_of(row)
    assert visit(exhibit, lambda: bench)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{row}. {get_row(row).title}"
    verdicts = {line[2:26].strip(): line[28:] for line in lines[1:]}
    assert verdicts["specimen"].startswith("breaks: ")
    assert all(verdicts[name] == "holds" for name in exhibit.real)
    if exhibit.injection is None:
        assert verdicts["whole"] == f"not tried: {get_row(row).not_injectable}"
    else:
        assert verdicts["whole, as it is"] == "holds"
        assert verdicts["whole, with the specimen"].startswith("breaks: ")


def test_a_specimen_that_breaks_nothing_is_told(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    tame = Exhibit(66, True, {"wild": False}, lambda part, bench: hold(part, "it bites"), "it bites")
    assert not visit(tame, lambda: bench)
    assert [line[28:] for line in capsys.readouterr().out.splitlines()[1:3]] == ["holds", "breaks: it bites"]


def test_a_row_that_is_not_there_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["999"]) == 2
    assert "the museum has no row 999" in capsys.readouterr().err


def test_the_command_that_a_row_names_runs() -> None:
    python, *words = shlex.split(get_row(10).command)
    assert python == "python"
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("10. ")


def test_a_specimen_can_be_put_into_a_stage_and_taken_out_again(bench: Bench) -> None:
    """What the notebooks record and step through."""
    exhibit = exhibit_of(33)
    assert exhibit.injection is not None
    with specimen(33), pytest.raises(Broken, match=exhibit.injection.symptom):
        exhibit.injection.scenario(bench)
    exhibit.injection.scenario(bench)
    for row in (1000, next(one.row for one in all_exhibits() if one.injection is None)):
        with pytest.raises(LookupError, match=str(row)):
            specimen(row)
