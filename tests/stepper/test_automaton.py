"""The drawn automaton: the right language, as small as can be, chains where text is forced, nothing left out."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from jumpforward.stepper.automaton import Automaton, automaton_of, label_of, visible_text
from jumpforward.stepper.picture import draw
from shared_runtime.constrain.regex.charset import EVERYTHING, CharSet
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constraint import Constraint
from tests.oracles.random_regex import random_pattern, random_text

SHIP = r'\{"name": "[a-z]{1,8}", "age": [0-9]{1,2}\}'


def _of(pattern: str) -> Automaton:
    found = automaton_of(Constraint.regex(pattern))
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(60))
def test_it_accepts_what_the_pattern_matches(seed: int) -> None:
    rng = random.Random(seed)
    pattern = random_pattern(rng)
    try:
        tree = normalise(pattern).tree
        automaton = automaton_of(Constraint.regex(pattern))
        texts = [random_text(rng, tree) for _ in range(20)]
    except Exception as error:
        pytest.skip(f"not a pattern with texts: {error}")
    if automaton is None:
        pytest.skip("the pattern has no automaton here")
    compiled = re.compile(normalise(pattern).explicit_text)
    for text in [*texts, *(text[:-1] for text in texts), *(text + "a" for text in texts), "", "x"]:
        state = automaton.walk(text)
        assert (state is not None and state in automaton.finals) == (compiled.fullmatch(text) is not None), text


@pytest.mark.parametrize(("pattern", "states"), [("(a|b)*abb", 4), ("a|b|c", 2), ("(ab|ac)d", 4), ("a{3}", 4), ("", 1),
                                                 ("(aa|ab|ba|bb)*", 2)])
def test_it_is_minimal(pattern: str, states: int) -> None:
    assert len(_of(pattern).rows) == states


def test_no_two_states_are_told_apart_by_no_text() -> None:
    """Minimal, said without the algorithm: every pair of states is split by some short text."""
    automaton = _of(SHIP)
    alphabet = 'a1{}",: nmge'

    def language(state: int, depth: int) -> frozenset[str]:
        found = {""} if state in automaton.finals else set()
        if depth:
            for char in alphabet:
                for first, last, key in automaton.intervals:
                    if first <= ord(char) <= last and key in automaton.rows[state]:
                        found |= {char + rest for rest in language(automaton.rows[state][key], depth - 1)}
        return frozenset(found)

    near_end = [state for state in range(len(automaton.rows)) if language(state, 3)]
    assert len({language(state, 3) for state in near_end}) == len(near_end)


def test_chains_are_what_can_be_jumped() -> None:
    chains = [(edge.start, edge.label, edge.end, len(edge.inside)) for edge in _of(SHIP).edges() if edge.inside]
    assert chains == [(0, '{"name":␣"', 10, 9), (12, ',␣"age":␣', 28, 8)]


def test_an_optional_tail_is_no_chain_across_the_place_where_the_text_may_end() -> None:
    """Museum row 12: the first map forced optional tails."""
    assert [(edge.start, edge.label, edge.end) for edge in _of("ab(cde)?").edges()] == [(0, "ab", 2), (2, "cde", 5)]


def test_no_state_is_lost_when_chains_are_drawn() -> None:
    for pattern in (SHIP, "(a|b)*abb", "yes|no|maybe", "[ab]c", "a(bc)*d", "x{30}"):
        automaton = _of(pattern)
        edges = automaton.edges()
        drawn = {state for edge in edges for state in (edge.start, edge.end)} | {0}
        inside = [state for edge in edges for state in edge.inside]
        assert drawn | set(inside) == set(range(len(automaton.rows)))
        assert len(inside) == len(set(inside))
        assert drawn.isdisjoint(inside)
        plain = {(edge.start, edge.end) for edge in automaton.edges(compressed=False)}
        ways = [way for edge in edges for way in pairwise((edge.start, *edge.inside, edge.end))]
        assert sorted(set(ways)) == sorted(plain)


@pytest.mark.parametrize("constraint", [None, Constraint.json_object(), Constraint.regex("(a|b)*a(a|b){16}"),
                                        Constraint.regex("(")])
def test_what_cannot_be_drawn_is_none(constraint: Constraint | None) -> None:
    assert automaton_of(constraint) is None


def test_choices_have_one_too() -> None:
    automaton = automaton_of(Constraint.choice(["yes", "no"]))
    assert automaton is not None
    assert automaton.walk("no") in automaton.finals
    assert automaton.walk("nope") is None


def test_labels() -> None:
    digits = CharSet.of([(ord("0"), ord("9"))])
    assert label_of(digits) == "0-9"
    assert label_of(digits.complement()) == "not 0-9"
    assert label_of(EVERYTHING) == "any"
    assert visible_text("a b\n\x07\u200b") == "a␣b↵␇U+200B"


@pytest.mark.parametrize("seed", range(25))
def test_every_drawing_is_whole(seed: int) -> None:
    """Well-formed, every state and edge in it, nothing outside its frame, states apart from each other."""
    rng = random.Random(1_000 + seed)
    automaton = automaton_of(Constraint.regex(random_pattern(rng)))
    if automaton is None:
        pytest.skip("the pattern has no automaton here")
    picture = draw(automaton)
    root = ET.fromstring(picture.svg)
    space = "{http://www.w3.org/2000/svg}"
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    circles = [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in root.iter(f"{space}circle")
               if one.attrib["class"] == "jf-disc"]
    edges = automaton.edges()
    if picture.text.startswith("A finite"):
        drawn = {state for edge in edges for state in (edge.start, edge.end)} | {0}
        assert len(circles) == len(drawn)
        assert sum("data-start" in one.attrib for one in root.iter(f"{space}g")) == len(edges)
    assert all(15 <= x <= width - 15 and 15 <= y <= height - 15 for x, y in circles)
    assert all(abs(x - u) + abs(y - v) > 30 for index, (x, y) in enumerate(circles) for u, v in circles[:index])
    title = root.find(f"{space}title")
    assert title is not None
    assert title.text == picture.text


def test_a_large_automaton_is_drawn_around_a_state() -> None:
    automaton = _of("[a-z][0-9]" * 150)
    picture = draw(automaton, around=200)
    assert 'data-state="200"' in picture.svg
    assert picture.svg.count("data-state") < 20
    assert draw(automaton).svg.count("data-state") < 20, "too many to draw them all"
