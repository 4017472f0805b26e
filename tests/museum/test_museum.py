"""Each specimen breaks its invariant, naming the symptom; each real part keeps it."""

from __future__ import annotations

from importlib.resources import files as files_of
from pathlib import Path
from typing import Any

import pytest
import torch

from jumpforward.museum import Commit, all_rows, get_row
from tests.museum import rows
from tests.museum.bench import Bench, Broken
from tests.museum.exhibit import Exhibit
from tests.museum.exhibits import all_exhibits

EXHIBITS = all_exhibits()
REAL = [pytest.param(exhibit, name, id=f"row_{exhibit.row:02}-{name}") for exhibit in EXHIBITS for name in exhibit.real]


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: f"row_{exhibit.row:02}")
def test_the_specimen_breaks_the_invariant(exhibit: Exhibit[Any], bench: Bench) -> None:
    with pytest.raises(Broken, match=exhibit.symptom):
        exhibit.invariant(exhibit.specimen, bench)


@pytest.mark.parametrize(("exhibit", "name"), REAL)
def test_the_real_part_keeps_the_invariant(exhibit: Exhibit[Any], name: str, bench: Bench) -> None:
    exhibit.invariant(exhibit.real[name], bench)


@pytest.mark.gpu
@pytest.mark.parametrize("row", [row.number for row in all_rows() if "gpu" in row.needs])
def test_the_invariant_holds_on_a_gpu(row: int, bench: Bench) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    bench.device = "cuda"
    exhibit = next(exhibit for exhibit in EXHIBITS if exhibit.row == row)
    for real in exhibit.real.values():
        exhibit.invariant(real, bench)
    with pytest.raises(Broken, match=exhibit.symptom):
        exhibit.invariant(exhibit.specimen, bench)


def test_every_exhibit_has_its_metadata_and_no_row_is_without_exhibit() -> None:
    assert [exhibit.row for exhibit in EXHIBITS] == [row.number for row in all_rows()]
    files = {path.stem for path in Path(rows.__file__).parent.glob("row_*.py")}
    data = files_of("jumpforward.museum").joinpath("rows").iterdir()
    assert files == {f"row_{path.name.removesuffix('.toml')}" for path in data}


def test_every_bug_of_the_history_is_here() -> None:
    assert [row.number for row in all_rows()] == list(range(1, 70))


def test_a_commit_has_one_date_and_one_pull_request() -> None:
    known: dict[str, Commit] = {}
    for row in all_rows():
        for commit in (*row.found, *row.caused_by):
            assert known.setdefault(commit.commit, commit) == commit


def test_most_specimens_are_injected_into_a_stage() -> None:
    assert sum(row.injectable for row in all_rows()) >= 35


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: f"row_{exhibit.row:02}")
def test_an_exhibit_stands_beside_a_real_part_of_its_stage(exhibit: Exhibit[Any]) -> None:
    assert exhibit.real
    assert (exhibit.injection is not None) == get_row(exhibit.row).injectable
