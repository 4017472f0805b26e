from __future__ import annotations

from typing import get_args

import pytest

from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint, ConstraintKind
from shared_runtime.errors import RequestError


def test_equal_constraints_are_one_cache_key_and_different_ones_are_not() -> None:
    keys = {Constraint.regex("a+"), Constraint.regex("a+"), Constraint.regex("a"), Constraint.choice(["a+"]),
            Constraint("ebnf", "a+"), Constraint("json_object")}
    assert len(keys) == 5


def test_choices_keep_the_users_order_and_repeats_count_once() -> None:
    assert Constraint.choice(["no", "yes", "no", "maybe"]).choices == ("no", "yes", "maybe")
    assert Constraint.choice(("b", "a")) == Constraint.choice(["b", "a", "b"])
    assert Constraint.choice(["b", "a"]) != Constraint.choice(["a", "b"])


def test_no_choice_is_refused_with_the_way_out() -> None:
    with pytest.raises(RequestError) as caught:
        Constraint.choice([])
    assert caught.value.where == "choice"
    assert "at least one choice" in str(caught.value)
    assert "--choice TEXT" in str(caught.value)


def test_an_empty_alternative_is_a_choice_like_any_other() -> None:
    assert Constraint.choice(["", "yes"]).choices == ("", "yes")


def test_a_constraint_cannot_be_changed_after_it_became_a_key() -> None:
    with pytest.raises(AttributeError):
        Constraint.regex("a").source = "b"  # type: ignore[misc]  # that it is frozen is what is tested


def test_the_short_form_names_the_kind_and_cuts_a_long_source_at_60_characters() -> None:
    assert Constraint.regex("[a-z]+").text == "regex [a-z]+"
    assert Constraint.choice(["yes", "no"]).text == "choice yes | no"
    assert Constraint.regex("x" * 60).text == "regex " + "x" * 60
    assert Constraint.regex("x" * 61).text == "regex " + "x" * 57 + "..."


def test_every_kind_is_listed_once() -> None:
    assert get_args(ConstraintKind) == CONSTRAINT_KINDS
    assert len(set(CONSTRAINT_KINDS)) == 6
