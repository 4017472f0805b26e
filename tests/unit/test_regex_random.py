"""Random patterns: the front end takes what Python takes, means what Python means, or names what it lacks."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.errors import (
    ConstraintError,
    GrammarSyntaxError,
    UnsatisfiableConstraintError,
    UnsupportedConstraintError,
)
from tests.oracles.random_regex import patterns, random_pattern, random_text, texts_of
from tests.unit.regex_readers import SHORT, check_same_language, python

SOUP = ["a", "b", "k", "K", ".", "|", "(", ")", "(", ")", "[", "]", "^", "$", "*", "+", "?", "{", "}", ",", "-",
        "0", "1", " ", "#", "\n", r"\w", r"\d", r"\s", r"\W", r"\S", r"\D", r"\n", "(?:", "(?i:", "(?-i:", "(?s:",
        "(?x:", "(?P<n>", "(?#", "[^", "{1,2}", "{2}", "{,1}", "{0}", "a-b", "[a", "b]", r"\0", r"\12", r"\141",
        r"\x61", r"\u0062", r"\]", r"\-", r"\Z", r"\A", "*?", "&&", "--", "[:", r"\1", "é", "(?=", "(?>", r"\b",
        "\\\\"]
OPENINGS = ["", "", "", "", "(?i)", "(?x)", "(?s)", "(?m)", "(?ix)", "(?a)"]
SOUP_TEXTS = [text for text in SHORT if len(text) < 3] + [
    "aaa", "abab", "bbbb", "}", "{", "{}", "a{", "{,}", "#", "\\", "[", "&", "^", "$", "\0", "\f", "a-", "^a", "a,",
    "aK1b"]


def refusal(pattern: str) -> ConstraintError | None:
    """The error of the dialect, None when it takes the pattern."""
    try:
        normalise(pattern)
    except ConstraintError as error:
        return error
    return None


def python_refusal(pattern: str) -> re.error | None:
    """The error of Python's `re`, None when it takes the pattern."""
    try:
        python(pattern)
    except re.error as error:
        return error
    return None


def check_soup(seed: int, count: int) -> int:
    """Random pieces of syntax; how many of them the dialect takes."""
    rng = random.Random(seed)
    taken = 0
    for _ in range(count):
        pattern = rng.choice(OPENINGS) + "".join(rng.choice(SOUP) for _ in range(rng.randint(1, 9)))
        match refusal(pattern):
            case None:
                check_same_language(pattern, SOUP_TEXTS)
                taken += 1
            case UnsupportedConstraintError(offset=int(offset)):
                assert pattern[offset] in "(\\^$*+?{", pattern
            case UnsatisfiableConstraintError():
                assert not any(python(pattern).fullmatch(text) for text in SOUP_TEXTS)
            case GrammarSyntaxError(offset=offset):
                judge = python_refusal(pattern)
                assert judge is not None, pattern
                assert judge.pos == offset
            case other:
                pytest.fail(f"{pattern!r}: {other!r}")
    return taken


def test_random_syntax_means_what_python_says_it_means() -> None:
    assert check_soup(seed=1, count=4_000) > 500


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_more_random_syntax_means_what_python_says_it_means(seed: int) -> None:
    assert check_soup(seed, count=20_000) > 2_500


def check_random_patterns(seed: int, count: int) -> None:
    rng = random.Random(seed)
    texts = [text for text in SHORT if len(text) < 3] + ["é中", "🌈", "🌈 ", "aB", "à", "文文", "a.b", "b\n", "\t"]
    for _ in range(count):
        pattern = random_pattern(rng, depth=2)
        try:
            tree = normalise(pattern).tree
        except UnsatisfiableConstraintError:
            assert not any(python(pattern).fullmatch(text) for text in texts)
            continue
        matching = [random_text(rng, tree) for _ in range(5)]
        assert all(python(pattern).fullmatch(text) for text in matching), (pattern, matching)
        check_same_language(pattern, texts)


def test_normal_form_keeps_the_language_of_random_patterns() -> None:
    check_random_patterns(seed=3, count=250)


@pytest.mark.slow
def test_normal_form_keeps_the_language_of_many_random_patterns() -> None:
    check_random_patterns(seed=4, count=4_000)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_normalising_twice_changes_nothing_and_texts_of_the_tree_match(data: st.DataObject) -> None:
    pattern = data.draw(patterns())
    normal = normalise(pattern)
    assert normalise(normal.text).tree == normal.tree
    assert normalise(normal.explicit_text).tree == normal.tree
    text = data.draw(texts_of(pattern))
    assert python(pattern).fullmatch(text)
