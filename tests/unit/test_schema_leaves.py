"""The regexes of a schema's leaves, each against what decides by itself: `int`, `re.search`, the calendar, `json`."""

from __future__ import annotations

import datetime
import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_runtime.constrain.regex.charset import NOTHING
from shared_runtime.constrain.regex.pattern_search import search_tree
from shared_runtime.constrain.regex.regex_tree import Node, render
from shared_runtime.constrain.schema.integer_range import integer_range
from shared_runtime.constrain.schema.schema_formats import FORMATS
from shared_runtime.constrain.schema.schema_leaves import other_keys
from shared_runtime.errors import UnsupportedConstraintError

BOUND = st.one_of(st.none(), st.integers(-12, 12), st.integers(-1200, 1200), st.integers(-10**30, 10**30))


def compiled(tree: Node) -> re.Pattern[str]:
    return re.compile("(?!)" if tree == NOTHING else render(tree))


@given(low=BOUND, high=BOUND, others=st.lists(st.integers(-10**31, 10**31), max_size=5))
def test_an_integer_range_holds_the_integers_between_its_bounds(low: int | None, high: int | None,
                                                               others: list[int]) -> None:
    pattern = compiled(integer_range(low, high))
    near = [bound + step for bound in (low, high, 0, 10, 100, -10, -100) if bound is not None for step in (-1, 0, 1)]
    for value in [*near, *others]:
        inside = (low is None or value >= low) and (high is None or value <= high)
        assert (pattern.fullmatch(str(value)) is not None) == inside, value


@pytest.mark.parametrize(("low", "high"), [(0, None), (None, 0), (-3, 1234), (98, 1002), (7, 7), (-25, -5), (1, 0)])
def test_an_integer_range_is_exact_on_a_stretch(low: int | None, high: int | None) -> None:
    pattern = compiled(integer_range(low, high))
    for value in range(-1500, 1501):
        inside = (low is None or value >= low) and (high is None or value <= high)
        assert (pattern.fullmatch(str(value)) is not None) == inside, value
    for other in ("-0", "00", "01", "-01", "-", "", "1.0", "+1", " 1"):
        assert pattern.fullmatch(other) is None, other


SEARCHED = ["a", "^a", "a$", "^a$", "^a|b$", "(^a|b)c?", "(^)*a", "(^a)?b", "^", "$", "", "^$", "(a|^b|c$)", "^(a|b)*$",
            "x?", "(^|b)a(c|$)", "^^a$$", "((^a)|(b$))", "(?:^a$)|bc", "(^a){0,1}b", "[ab]c", "(^(a|b)|c)(a|$)",
            "(^a?)b", r"\Aab|c\Z"]


@pytest.mark.parametrize("pattern", SEARCHED)
def test_a_searched_pattern_is_found_as_re_finds_it(pattern: str) -> None:
    """Texts without a newline: JSON Schema's `$` is the end of the text alone, Python's also before a last newline."""
    whole = compiled(search_tree(pattern))
    for length in range(5):
        for text in map("".join, itertools.product("abcx", repeat=length)):
            assert (whole.fullmatch(text) is not None) == (re.search(pattern, text) is not None), text


def test_an_anchor_inside_of_a_searched_pattern_is_refused() -> None:
    for pattern in ("a^b", "a$b", "(a$)*"):
        with pytest.raises(UnsupportedConstraintError, match="outer edge"):
            search_tree(pattern)


def test_dates_are_the_calendars() -> None:
    def exists(text: str) -> bool:
        try:
            datetime.date.fromisoformat(text)
        except ValueError:
            return False
        return True

    pattern = re.compile(FORMATS["date"])
    for year in [*range(0, 420), *range(1888, 2112), *range(9990, 10000)]:
        for day in ("02-28", "02-29", "02-30", "04-30", "04-31", "12-31", "13-01", "01-00"):
            text = f"{year:04d}-{day}"
            assert (pattern.fullmatch(text) is not None) == exists(text), text


@given(names=st.lists(st.text(st.characters(codec="utf-8"), max_size=4), max_size=4),
       others=st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=4))
def test_other_keys_are_all_but_the_named(names: list[str], others: list[str]) -> None:
    pattern = compiled(other_keys(names))
    for text in {*names, *others, *(name + "x" for name in names), *(name[:-1] for name in names)}:
        assert (pattern.fullmatch(json.dumps(text, ensure_ascii=False)) is not None) == (text not in names), text
