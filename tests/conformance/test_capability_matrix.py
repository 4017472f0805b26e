"""The matrix of `jumpforward stages` is true, cell by cell: a "yes" serves the kind, a "no" says who does."""

from __future__ import annotations

import json

import pytest

from jumpforward.cli import main
from shared_runtime.conformance.target import Target
from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint, ConstraintKind
from shared_runtime.errors import UnsupportedConstraintError
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from stages import all_stages, first_stage_with, get_stage
from tests.conformance.harness import TARGETS, Walkers, each_target, in_language
from tests.conftest import EngineFactory

EXAMPLES: dict[ConstraintKind, tuple[Constraint, str, str]] = {
    "regex": (Constraint.regex("[0-9]{2}"), "42", "4x"),
    "choice": (Constraint.choice(["yes", "no"]), "no", "nope"),
    "json_schema": (Constraint.json_schema({"type": "object", "properties": {"n": {"enum": [1, 2]}},
                                            "required": ["n"], "additionalProperties": False}), '{"n": 2}', '{"n": 3}'),
    "json_object": (Constraint.json_object(), '{"a": [1, {"b": null}]}', "[1]"),
    "ebnf": (Constraint.ebnf('root ::= "(" root ")" | "x"'), "((x))", "((x)"),
    "structural_tag": (Constraint.structural_tag({
        "structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}], "triggers": ["<n>"]}),
        "so <n>12</n>", "so <n>x</n>"),
}
CELLS = [(target, kind) for target in TARGETS for kind in CONSTRAINT_KINDS]
NO = [(target, kind) for target, kind in CELLS if not target.supports(kind)]
each_cell = pytest.mark.parametrize(("target", "kind"), CELLS, ids=[f"{target}-{kind}" for target, kind in CELLS])


@each_cell
def test_each_cell_is_true(target: Target, kind: ConstraintKind, walkers: Walkers) -> None:
    constraint, inside, outside = EXAMPLES[kind]
    walker = walkers.judging(target)
    if target.supports(kind):
        for text, accepted in ((inside, True), (outside, False)):
            ids = walkers.tokenizer.spell(text)
            with walker.start(constraint) as walk:
                fed = walk.feed_allowed(ids) == len(ids)
                assert (fed and (walk.terminated or walk.accepting)) is accepted, text
        return
    with pytest.raises(UnsupportedConstraintError) as caught:
        walker.start(constraint)
    if kind not in target.spec.capabilities.constraints:
        assert caught.value.first_stage == first_stage_with(kind) > target.spec.id
        assert f"--stage {caught.value.first_stage}" in str(caught.value)
    else:  # the stage has it, this backend has not: the message names one that does
        others = [name for name in target.spec.capabilities.backends
                  if kind in target.spec.capabilities.kinds_of(name)]
        assert any(name in str(caught.value) for name in others)


@pytest.mark.parametrize(("target", "kind"), NO, ids=[f"{target}-{kind}" for target, kind in NO])
def test_a_no_ends_its_request_and_no_other(target: Target, kind: ConstraintKind, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    good = engine.add_request("x", sampling=SamplingParams(max_new_tokens=4), constraint=EXAMPLES["choice"][0])[0]
    bad = engine.add_request("x", sampling=SamplingParams(max_new_tokens=4), constraint=EXAMPLES[kind][0])[0]
    results: dict[str, Result] = {}
    while engine.has_work:
        engine.step()
        results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    assert results[bad].finish_reason == "error"
    assert results[bad].token_ids == []
    assert isinstance(results[bad].error, UnsupportedConstraintError)
    assert in_language(EXAMPLES["choice"][0], results[good].text)


@each_target
def test_every_kind_that_is_claimed_has_a_backend_and_the_first_stage_is_the_first(target: Target) -> None:
    capabilities = target.spec.capabilities
    served = frozenset[ConstraintKind]().union(*(capabilities.kinds_of(name) for name in capabilities.backends))
    assert served == capabilities.constraints
    assert set(capabilities.backend_constraints) <= set(capabilities.backends)
    assert all(first_stage_with(kind) <= target.spec.id for kind in capabilities.constraints)


def test_the_command_prints_the_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["stages"]
    for row, spec in zip(shown, all_stages(), strict=True):
        assert row["kinds"] == {name: [kind for kind in CONSTRAINT_KINDS if kind in spec.capabilities.kinds_of(name)]
                                for name in spec.capabilities.backends}
    assert main(["stages"]) == 0
    table = capsys.readouterr().out
    for kind in CONSTRAINT_KINDS:
        line = next(line for line in table.splitlines() if line.strip().startswith(kind))
        assert ("no" in line.split()) == (kind not in get_stage(1).capabilities.constraints or any(
            kind not in spec.capabilities.constraints for spec in all_stages()))
