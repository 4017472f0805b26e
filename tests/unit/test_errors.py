from __future__ import annotations

import copy
import json
import pickle

import pytest

from shared_runtime import errors
from shared_runtime.errors import (
    ConstraintError,
    GrammarSyntaxError,
    IntegrityError,
    JumpforwardError,
    RequestError,
    UnsupportedConstraintError,
)

FAMILY = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, JumpforwardError)]


@pytest.mark.parametrize("kind", FAMILY)
def test_the_text_of_every_error_names_the_place_the_thing_and_the_way_out_on_one_line(
        kind: type[JumpforwardError]) -> None:
    assert str(kind("top_k is -1", where="top_k", fix="use 0")) == "top_k: top_k is -1 (use 0)"
    assert str(kind("it broke")) == "it broke"
    assert str(kind("it broke", where="here")) == "here: it broke"
    assert str(kind("it broke", fix="mend it")) == "it broke (mend it)"


@pytest.mark.parametrize("kind", FAMILY)
def test_every_error_as_dict_has_type_message_and_offset_and_is_json(kind: type[JumpforwardError]) -> None:
    shown = kind("bad", where="seed", fix="drop it").as_dict()
    assert shown == {"type": kind.__name__, "message": "seed: bad (drop it)", "offset": None}
    assert json.loads(json.dumps(shown)) == shown


@pytest.mark.parametrize("kind", [GrammarSyntaxError, UnsupportedConstraintError])
def test_an_offset_is_shown_as_the_place_and_handed_on_as_a_number(
        kind: type[GrammarSyntaxError] | type[UnsupportedConstraintError]) -> None:
    error = kind("unbalanced parenthesis", offset=0)
    assert str(error) == "position 0: unbalanced parenthesis"
    assert error.as_dict()["offset"] == 0
    assert str(kind("unbalanced", offset=4, where="regex")) == "regex: unbalanced"


def test_an_unsupported_kind_carries_the_first_stage_that_has_it() -> None:
    assert UnsupportedConstraintError("no ebnf", first_stage=4).first_stage == 4
    assert UnsupportedConstraintError("no stage has it").first_stage is None


def test_constraint_errors_can_be_caught_together_and_a_request_error_is_none_of_them() -> None:
    kinds = {kind.__name__ for kind in FAMILY if issubclass(kind, ConstraintError)}
    assert kinds == {"ConstraintError", "GrammarSyntaxError", "UnsupportedConstraintError",
                     "UnsatisfiableConstraintError", "GrammarTimeoutError"}
    assert not issubclass(RequestError, ConstraintError)


def test_a_defect_of_the_project_is_not_caught_as_a_user_error() -> None:
    assert not issubclass(IntegrityError, JumpforwardError)


@pytest.mark.parametrize("error", [
    RequestError("bad", where="seed", fix="drop it"), GrammarSyntaxError("bad", offset=3),
    UnsupportedConstraintError("bad", first_stage=4, offset=1),
])
def test_an_error_survives_the_way_through_another_thread_or_process(error: JumpforwardError) -> None:
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert vars(again) == vars(error)
        assert str(again) == str(error)
