"""Rows of the user's page and of the handed cases, each held to what it says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constrain.regex.regex_parser import MAX_COUNT, MAX_NESTING
from shared_runtime.errors import ConstraintError
from tests.oracles.nfa_oracle import MaskOracle
from tests.oracles.vocabularies import every_byte
from tests.unit.regex_page import PAGE, Accepted, Refused, accepted_rows, refused_rows
from tests.unit.regex_readers import check_interegular, check_same_language, python

CASES = Path(__file__).parents[1] / "data/cases.jsonl"


@pytest.mark.parametrize("row", accepted_rows(), ids=lambda row: row.pattern)
def test_the_page_is_right_about_what_matches(row: Accepted) -> None:
    check_same_language(row.pattern, row.matching + row.others)
    check_interegular(row.pattern, row.matching + row.others)
    assert all(python(row.pattern).fullmatch(text) for text in row.matching)
    assert not any(python(row.pattern).fullmatch(text) for text in row.others)


@pytest.mark.parametrize("row", refused_rows(), ids=lambda row: row.pattern)
def test_the_page_is_right_about_what_is_refused(row: Refused) -> None:
    with pytest.raises(ConstraintError) as caught:
        normalise(row.pattern)
    assert type(caught.value).__name__ == row.error
    assert caught.value.where == f"position {row.position}"


def test_the_page_names_the_limits_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"nested {MAX_NESTING} deep" in page
    assert f"up to {MAX_COUNT}" in page


@dataclass(frozen=True)
class Case:
    id: str
    pattern: str
    accept: list[str]
    reject: list[str]
    expect: str


def handed_cases() -> list[Case]:
    rows = map(json.loads, CASES.read_text(encoding="utf-8").splitlines())
    return [Case(row["id"], row["grammar"], row["accept"], row["reject"], row["expect"])
            for row in rows if row["kind"] == "regex"]


@pytest.mark.parametrize("case", handed_cases(), ids=lambda case: case.id)
def test_handed_regex_cases_are_right(case: Case) -> None:
    if case.id in ("hand-015", "hand-016"):
        with pytest.raises(ConstraintError) as caught:
            normalise(case.pattern)
        assert caught.value.where == {"hand-015": "position 3", "hand-016": "position 8"}[case.id]
        return
    assert case.expect in ("ok", "ok_or_error")
    check_same_language(case.pattern, case.accept + case.reject)
    check_interegular(case.pattern, case.accept + case.reject)
    oracle = MaskOracle(case.pattern, every_byte())
    assert all(oracle.accepts(text) for text in case.accept)
    assert not any(oracle.accepts(text) for text in case.reject)
