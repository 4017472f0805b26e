"""(g) Every handed regex case is right; `ok` means right, and refusing everything is failing."""

from __future__ import annotations

import pytest

from shared_runtime.constrain.walk import GrammarWalker
from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint, ConstraintKind
from shared_runtime.errors import ConstraintError, UnsupportedConstraintError
from shared_runtime.tokenizer import Tokenizer
from tests.conformance.harness import TARGETS, Case, Target, Walkers, cases, each_target


def _accepts(walker: GrammarWalker, constraint: Constraint, ids: list[int]) -> bool:
    with walker.start(constraint) as walk:
        return walk.feed_allowed(ids) == len(ids) and (walk.terminated or walk.accepting)


def _spellings(text: str, tokenizer: Tokenizer) -> list[list[int]]:
    """The canonical tokens of `text`, and its bytes one by one: two ends of the ways to spell it."""
    single = tokenizer.vocabulary.byte_tokens
    return [tokenizer.encode(text, parse_control=False), [single[byte] for byte in text.encode()]]


def _refused(walker: GrammarWalker, constraint: Constraint) -> bool:
    try:
        walker.start(constraint).close()
    except ConstraintError:
        return True
    return False


@each_target
@pytest.mark.parametrize("case", [case for case in cases("regex") if case.expect != "error"], ids=lambda case: case.id)
def test_regex_case_is_right(target: Target, case: Case, walkers: Walkers, tokenizer: Tokenizer) -> None:
    constraint = Constraint.regex(case.grammar)
    if case.expect != "ok" and _refused(walkers(target), constraint):
        return
    for text in case.accept:
        for ids in _spellings(text, tokenizer):
            assert _accepts(walkers(target), constraint, ids), f"{text!r} must be accepted, spelled {ids}"
    for text in case.reject:
        for ids in _spellings(text, tokenizer):
            assert not _accepts(walkers(target), constraint, ids), f"{text!r} must be rejected, spelled {ids}"


@each_target
@pytest.mark.parametrize("case", [case for case in cases("regex") if case.expect == "error"], ids=lambda case: case.id)
def test_bad_regex_is_refused_twice(target: Target, case: Case, walkers: Walkers) -> None:
    messages = []
    for _ in range(2):
        with pytest.raises(ConstraintError) as caught:
            walkers(target).start(Constraint.regex(case.grammar))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert len(messages[0]) > 15


LACKING = [(target, kind) for target in TARGETS for kind in CONSTRAINT_KINDS if not target.supports(kind)]


@pytest.mark.parametrize(("target", "kind"), LACKING, ids=[f"{target}-{kind}" for target, kind in LACKING])
def test_a_kind_the_generation_lacks_names_the_first_stage_that_has_it(
        target: Target, kind: ConstraintKind, walkers: Walkers) -> None:
    with pytest.raises(UnsupportedConstraintError) as caught:
        walkers(target).start(Constraint(kind, source="{}"))
    assert caught.value.first_stage is not None
    assert caught.value.first_stage > target.spec.id
    assert f"--stage {caught.value.first_stage}" in str(caught.value)
