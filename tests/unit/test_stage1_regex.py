"""Stage 1's automata: the right language, in bytes, and an end to every build."""

from __future__ import annotations

import itertools
import re

import interegular
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.errors import GrammarTimeoutError
from shared_runtime.grammar_limits import GrammarLimits
from stages.stage1_copied_fsm.regex import make_deterministic_fsm
from tests.unit.stage1_helpers import byte_automaton

ATOMS = ["a", "b", "é", "中", "🌙", "[ab]", "[^a]", ".", r"\w", r"\s", "[a-é]", "[一-龥]", "[^中]", r"\n", "(a|bé)"]
QUANTIFIERS = ["", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "{1,2}?"]
SAMPLE = ["".join(text) for length in range(4) for text in itertools.product("abé中🌙\n", repeat=length)]

patterns = st.recursive(
    st.builds(str.__add__, st.sampled_from(ATOMS), st.sampled_from(QUANTIFIERS)),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.builds(lambda body, quantifier: f"({body}){quantifier}", inner, st.sampled_from(QUANTIFIERS)),
    ),
    max_leaves=6,
)


def accepts(automaton: ByteAutomaton, spelled: bytes) -> bool:
    state = 0
    for byte in spelled:
        state = int(automaton.table[state, byte])
        if state == DEAD:
            return False
    return bool(automaton.accepting[state])


@settings(max_examples=150, deadline=None)
@given(patterns)
def test_the_automaton_accepts_what_python_matches_in_full(pattern: str) -> None:
    automaton = byte_automaton(pattern)
    for text in SAMPLE:
        assert accepts(automaton, text.encode()) == bool(re.fullmatch(pattern, text, re.ASCII)), (pattern, text)


@pytest.mark.parametrize("pattern", [r"(a|b)*a(a|b){3}", r"[^a]{1,3}(é|中)?", r"(a{0,2}b?){1,3}", r"(|a)(b|)+",
                                     r".*é.*"])
def test_the_automaton_has_the_language_of_the_library_that_upstream_used(pattern: str) -> None:
    """interegular's own road, as far as it is safe to go it."""
    upstream = interegular.parse_pattern(normalise(pattern).text).to_fsm()
    automaton = byte_automaton(pattern)
    for text in SAMPLE:
        assert accepts(automaton, text.encode()) == upstream.accepts(text), (pattern, text)


@pytest.mark.parametrize("pattern", [r"[\x00-\U0010ffff]", r"[^a]", r"[\u0080-\u07ff\U00010000-\U0010ffff]", "."])
def test_exactly_the_valid_utf8_of_a_class_is_accepted(pattern: str) -> None:
    """Code points on both sides of every length of UTF-8; no surrogate, no overlong form, nothing past the end."""
    automaton = byte_automaton(pattern)
    edges = [0, 0x0A, 0x61, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF,
             0x40000, 0xFFFFF, 0x100000, 0x10FFFF]
    for code_point in edges:
        char = chr(code_point)
        assert accepts(automaton, char.encode()) == bool(re.fullmatch(pattern, char)), hex(code_point)
    for broken in (b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x8f\xbf\xbf",
                   b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xff", b"\xe4\xb8"):
        assert not accepts(automaton, broken), broken


def test_states_inside_characters_are_shared() -> None:
    """20 characters of 3 bytes: 21 states between characters and 3 inside each, not one for each lead byte."""
    assert len(byte_automaton(r"[\u4e00-\u9fff]{1,20}").table) == 81


def test_equal_patterns_get_equal_numbers() -> None:
    first, second = (byte_automaton(pattern) for pattern in (r"(x|[0-2]+)y", r"(?:[012]{1,}|x)y"))
    assert (first.table == second.table).all()


HOSTILE = [
    r"(a|b)*a(a|b){20}", r".*a.{14}", r"a{1,100000}", r"[\u0000-\uffff]{1,5000}", r"(.{0,200}){0,200}",
    r"((a?){100}){100}", r"(a{1,300}){1,300}", r"((((a{1,30}){1,30}){1,30}){1,30}){1,30}",
    r"(" + "".join(f"[^{chr(code)}]" for code in range(0x4E00, 0x4E00 + 800)) + r"){1,900}",
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pattern", HOSTILE, ids=lambda pattern: pattern[:24])
def test_a_hostile_pattern_ends_with_an_error_that_says_what_to_do(pattern: str) -> None:
    with pytest.raises(GrammarTimeoutError) as caught:
        byte_automaton(pattern, GrammarLimits(compile_timeout=2.0, max_states=2_000))
    assert caught.value.fix


def test_large_but_harmless_counts_are_answered() -> None:
    assert len(byte_automaton("a{1,3000}").table) == 3001
    assert len(byte_automaton("(a{1,12}){1,12}").table) == 145
    assert len(byte_automaton("(a*)*b").table) == 2


def test_the_state_limit_is_exact() -> None:
    assert len(byte_automaton("a{9}", GrammarLimits(max_states=10)).table) == 10
    with pytest.raises(GrammarTimeoutError, match="more than 10 states"):
        byte_automaton("a{10}", GrammarLimits(max_states=10))


def test_no_time_left_ends_a_build() -> None:
    with pytest.raises(GrammarTimeoutError, match="took longer than 0 s"):
        byte_automaton("[a-z]{1,200}", GrammarLimits(compile_timeout=0.0))


def test_long_builds_report_progress() -> None:
    seen: list[tuple[str, int, int]] = []
    budget = Budget(GrammarLimits(), lambda what, done, total: seen.append((what, done, total)))
    make_deterministic_fsm(normalise("a{1,1000}").tree, budget)
    assert [done for what, done, _ in seen if what == "fsm states"] == [256, 512, 768]
