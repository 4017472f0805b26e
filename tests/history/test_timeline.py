"""The timeline as data, without any clone."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from history.errors import HistoryError
from history.figures import churn, commits_by_month
from history.timeline import KINDS, cited_commits, select, timeline

ROOT = Path(__file__).resolve().parents[2]
# A short hash in prose: hex digits and letters both, standing alone.
_HASH = re.compile(r"(?<![0-9a-zA-Z_/.#-])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])([0-9a-f]{10}|[0-9a-f]{40})"
                   r"(?![0-9a-zA-Z_-])")


def test_the_rows_are_well_formed_and_in_order() -> None:
    rows = timeline()
    assert len(rows) == 116
    assert len({row.hash for row in rows}) == 116
    assert {row.kind for row in rows} == set(KINDS)
    assert {row.stage for row in rows} == {1, 2, 3, 4, 5}
    for row in rows:
        assert re.fullmatch(r"[0-9a-f]{40}", row.hash)
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.date)
    months = [row.date[:7] for row in rows]
    assert months == sorted(months)


def test_every_commit_that_the_product_names_is_known() -> None:
    """A hash in prose that resolves nowhere is a claim that nobody can check."""
    known = [row.hash for row in timeline()] + [one.hash for one in cited_commits()]
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "*.toml", "*.py"],
                            cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    unknown = {}
    for name in listed:
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            for found in _HASH.findall((ROOT / name).read_text(encoding="utf-8")):
                if not any(one.startswith(found) for one in known):
                    unknown[found] = name
    assert unknown == {}


def test_selecting_is_an_intersection() -> None:
    rows = timeline()
    fixes = select(rows, stages=[2], kinds=["fix"])
    assert fixes == [row for row in rows if row.stage == 2 and row.kind == "fix"]
    assert select(rows, hashes=frozenset({rows[3].hash}), stages=[1]) == [rows[3]]
    assert select(rows) == list(rows)


@pytest.mark.parametrize("wrong", [{"stages": [6]}, {"stages": [0]}, {"kinds": ["bug"]}])
def test_what_no_row_can_have_is_an_error(wrong: dict[str, list[object]]) -> None:
    with pytest.raises(HistoryError, match="there is no"):
        select(timeline(), **wrong)  # type: ignore[arg-type]  # one key of each kind


def test_the_figures_count_every_row_once() -> None:
    assert sum(one.commits for one in commits_by_month(timeline())) == len(timeline())
    by_stage = Counter(row.stage for row in timeline())
    for stage in by_stage:
        assert sum(one.commits for one in commits_by_month(timeline()) if one.stage == stage) == by_stage[stage]
    assert sum(one.insertions for one in churn(timeline())) == sum(row.insertions for row in timeline()[1:])
    assert sum(one.deletions for one in churn(timeline())) == sum(row.deletions for row in timeline()[1:])
