"""(g) Every handed case on every stage and backend, by the engine of `jumpforward check`: right means right."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from shared_runtime.conformance.case_file import Case
from shared_runtime.conformance.deviations import Deviation, shipped_deviations
from shared_runtime.conformance.target import Target
from shared_runtime.conformance.verdict import CaseVerdict
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError
from tests.conformance.harness import CASES, TARGETS, Walkers, cases, each_target

TEXTS = tuple(case for case in cases() if case.kind != "behaviour")
each_case = pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.id)


def _wrong(verdict: CaseVerdict) -> str:
    told = [f"{one.text[:80]!r} must be {one.expected}ed: {one.check}" for one in verdict.texts
            if not one.right or not one.check.spellings_agree]
    return "\n".join([str(verdict.error), *told])


@each_target
@each_case
def test_case_is_right(target: Target, case: Case, walkers: Walkers) -> None:
    verdict = walkers.judge.judge(case, target)
    assert verdict.verdict != "WRONG", _wrong(verdict)
    applies = target.spec.id in case.stages and target.supports(case.kind)  # type: ignore[arg-type]  # no behaviour
    assert (verdict.verdict != "not_applicable") == applies
    if verdict.verdict == "clear_error":
        assert verdict.error is not None
        assert len(str(verdict.error["message"])) > 15


@each_target
def test_own_automata_are_right_about_every_regex_that_must_compile(target: Target, walkers: Walkers) -> None:
    """Stages without a library have nobody to blame, and refusing everything is failing anywhere."""
    asked = [case for case in cases("regex") if case.expect == "ok"]
    verdicts = [walkers.judge.judge(case, target).verdict for case in asked]
    wrong = [case.id for case, verdict in zip(asked, verdicts, strict=True) if verdict != "right"]
    listed = {row.case for row in shipped_deviations() if row.backend == target.backend
              and target.spec.id in row.stages}
    if "*" not in listed:
        assert set(wrong) <= listed
    if target.spec.id <= 2:
        assert wrong == []


_MEASURED_AS = {"fsm": "interegular", "outlines": "outlines_core"}


@each_target
def test_no_fewer_answers_are_right_than_the_library_alone_gave(target: Target, walkers: Walkers) -> None:
    """The case file says what each library answered when it was tried without a stage around it."""
    name = _MEASURED_AS.get(target.backend, target.backend)
    rows = {row["id"]: row["backends"].get(name) for row in map(json.loads, CASES.read_text("utf-8").splitlines())}
    asked = [case for case in TEXTS if target.spec.id in case.stages and target.supports(
        case.kind)]  # type: ignore[arg-type]  # no behaviour case is left
    alone = sum(rows[case.id] in ("right", "right_error") for case in asked)
    judge = replace(walkers.judge, all_tokenizations=False)
    found = [judge.judge(case, target).verdict for case in asked]
    assert found.count("right") + found.count("clear_error") == len(asked)
    assert found.count("right") >= alone, dict(zip([case.id for case in asked], found, strict=True))


@each_target
@pytest.mark.parametrize("case", [case for case in cases("regex") if case.expect == "error"], ids=lambda case: case.id)
def test_a_bad_grammar_is_refused_twice_in_the_same_words(target: Target, case: Case, walkers: Walkers) -> None:
    assert case.constraint is not None
    messages = []
    for _ in range(2):
        with pytest.raises(ConstraintError) as caught:
            walkers(target).start(case.constraint)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_text_that_is_only_left_out_excuses_no_other(walkers: Walkers) -> None:
    """`narrower` is about texts that are missing where a schema is open: a text wrongly in is wrong."""
    target = next(one for one in TARGETS if one.backend == "outlines")
    case = OPEN[0]
    assert walkers.judge.judge(case, target).verdict == "listed_deviation"
    assert walkers.judge.judge(replace(case, accept=case.accept[:1]), target).verdict == "right"
    assert walkers.judge.judge(replace(case, reject=('{"a":2}',)), target).verdict == "WRONG"
    closed = Constraint.json_schema(_NAMED | {"additionalProperties": False})
    assert walkers.judge.judge(replace(case, constraint=closed), target).verdict == "WRONG"


DEVIATIONS = shipped_deviations()


LISTED = [(target, row) for target in TARGETS for row in DEVIATIONS
          if row.backend == target.backend and target.spec.id in row.stages]


_NAMED: dict[str, object] = {"type": "object", "properties": {"a": {"type": "integer"}}}
_PAIR: dict[str, object] = {"type": "array", "prefixItems": [{"type": "integer"}]}
OPEN = [Case(line, f"open-{line}", "json_schema", Constraint.json_schema(schema), accept=(kept, left_out))
        for line, (schema, kept, left_out) in enumerate([
            (_NAMED, '{"a":1}', '{"a":1,"b":2}'), (_PAIR, "[1]", "[1,2]"),
            ({"properties": {"a": {"type": "integer"}}, "additionalProperties": False}, "{}", "3")], start=1)]
"""Schemas that allow more than they describe; the handed cases have none with such a text."""


@pytest.mark.parametrize(("target", "row"), LISTED, ids=[f"{target}-{row.case}" for target, row in LISTED])
def test_a_listed_deviation_still_shows(target: Target, row: Deviation, walkers: Walkers) -> None:
    """A row that no answer needs any more must go: it would hide the next mistake."""
    verdicts = (walkers.judge.judge(case, target) for case in (*TEXTS, *OPEN) if row.covers(case, target, row.about))
    assert any(verdict.verdict == "listed_deviation" and verdict.deviation == f"{row.what} ({row.upstream})"
               for verdict in verdicts)


@pytest.mark.parametrize("row", DEVIATIONS, ids=lambda row: f"{row.backend}-{row.case}")
def test_a_listed_deviation_is_the_librarys_own(row: Deviation) -> None:
    """The reproducer uses the library alone, and prints True as long as it is wrong."""
    installed = importlib.metadata.version(row.library)
    if installed != row.version:
        pytest.skip(f"the row is about {row.library} {row.version}, not {installed}")
    done = subprocess.run([sys.executable, "-c", row.reproducer], capture_output=True, text=True, check=False)
    assert done.stdout.strip().splitlines()[-1:] == ["True"], done.stderr
