"""Common beginnings are written once, and the language stays what it was."""

from __future__ import annotations

import random
import re

import pytest

from shared_runtime.constrain.regex.factoring import factored
from shared_runtime.constrain.regex.regex_dialect import escape_choice, normalise
from shared_runtime.constrain.regex.regex_tree import render
from shared_runtime.errors import UnsatisfiableConstraintError
from tests.oracles.random_regex import random_pattern


@pytest.mark.parametrize(("pattern", "shorter"), [
    ("|".join(map(str, range(1500, 2000))), "1[5-9][0-9][0-9]"), ("cat|catalog|category", "cat((alog|egory))?"),
    ("abc|abd|xbc", None), ("a|ab|abc", None), ("(a|b)c|(a|b)d", "[ab][cd]"), ("(ax|bx)|([ab]x)", "[ab]x"),
    ("a*b|a*c", "a*[bc]"), ("", ""),
])
def test_common_beginnings_are_written_once(pattern: str, shorter: str | None) -> None:
    tree = factored(normalise(pattern).tree)
    texts = [*map(str, range(1490, 2010)), "", "a", "ab", "abc", "abd", "xbc", "xbd", "cat", "cata", "catalog",
             "category", "ac", "bd", "aab", "c", "catego"]
    for text in texts:
        assert bool(re.fullmatch(render(tree), text)) == bool(re.fullmatch(pattern, text)), text
    if shorter is not None:
        assert len(render(tree)) <= len(shorter)


def test_the_language_of_random_patterns_stays() -> None:
    rng = random.Random(5)
    compared = 0
    for _ in range(300):
        pattern = random_pattern(rng)
        try:
            tree = normalise(pattern).tree
        except UnsatisfiableConstraintError:
            continue
        before, after = re.compile(render(tree)), re.compile(render(factored(tree)))
        for _ in range(30):
            text = "".join(rng.choice("abcé0 \n-") for _ in range(rng.randrange(6)))
            assert bool(before.fullmatch(text)) == bool(after.fullmatch(text)), (pattern, text)
            compared += 1
    assert compared > 3000


def test_a_choice_of_many_words_stays_a_choice() -> None:
    rng = random.Random(1)
    words = sorted({"".join(rng.choice("abc") for _ in range(rng.randint(1, 6))) for _ in range(200)})
    pattern = re.compile(render(factored(normalise(escape_choice(words)).tree)))
    other = {"".join(rng.choice("abc") for _ in range(rng.randint(1, 6))) for _ in range(500)} - set(words)
    assert all(pattern.fullmatch(word) for word in words)
    assert not any(pattern.fullmatch(word) for word in other)
