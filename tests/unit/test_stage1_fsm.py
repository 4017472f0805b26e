"""The state-to-token index: a token is allowed iff a text of the language can still be spelled after it."""

from __future__ import annotations

import itertools
import random
import re
from collections import deque
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import DEAD
from shared_runtime.errors import GrammarTimeoutError, UnsatisfiableConstraintError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.vocabulary import Vocabulary
from stages.stage1_copied_fsm.fsm import RegexFSM, build_fsm
from stages.stage1_copied_fsm.tokenizer import ReducedVocabulary
from tests.unit.stage1_helpers import EOS, allowed_ids, byte_automaton, compiled, vocabulary_of

# Every character that the bytes of a, b, é, ø and 中 can spell, in whatever order they come.
LETTERS = ["a", "b", *(bytes([0xC3, tail]).decode() for tail in (0xA9, 0xB8, 0xAD)),
           *(bytes([0xE4, *tail]).decode() for tail in itertools.product((0xA9, 0xB8, 0xAD), repeat=2))]
TEXTS = ["".join(text) for length in range(4) for text in itertools.product(LETTERS, repeat=length)]
FRAGMENTS = [b"a", b"b", b"ab", b"ba", b"aab", b"\xc3", b"\xa9", b"\xb8", b"\xad", b"\xe4", b"\xe4\xb8", b"\xb8\xad",
             b"\xc3\xa9", b"a\xc3", b"\xa9b", b"\xad\xe4", "中".encode(), "中a".encode(), "éé".encode(), b"\xa9\xc3"]

atoms = st.sampled_from(["a", "b", "é", "ø", "中", "[ab]", "[é-ø]", ".", "[^a]", ""])
# At most three characters a text, so that TEXTS holds every text that the vocabulary can spell.
finite_patterns = st.one_of(
    st.lists(st.lists(atoms, min_size=1, max_size=3).map("".join), min_size=1, max_size=3).map("|".join),
    st.builds(lambda atom, count: f"({atom}){{{count}}}", atoms, st.sampled_from(["0,3", "1,2", "3", "0,1"])),
    st.builds(lambda left, right: f"({left}|{right}b?)a?", atoms, atoms),
)


class TextOracle:
    """What may come next, from the list of all texts alone: no automaton."""

    def __init__(self, pattern: str, vocabulary: Vocabulary) -> None:
        self.texts = {text.encode() for text in TEXTS if re.fullmatch(pattern, text, re.ASCII)}
        self.prefixes = {text[:end] for text in self.texts for end in range(len(text) + 1)}
        self.vocabulary = vocabulary
        self.alive = lru_cache(maxsize=None)(self._alive)

    def _alive(self, prefix: bytes) -> bool:
        return prefix in self.texts or bool(self.allowed(prefix) - {EOS})

    def allowed(self, prefix: bytes) -> set[int]:
        tokens = {i for i, spelled in enumerate(self.vocabulary.token_bytes)
                  if spelled and prefix + spelled in self.prefixes and self.alive(prefix + spelled)}
        return tokens | ({EOS} if prefix in self.texts else set())


@settings(max_examples=200, deadline=None)
@given(finite_patterns, st.sets(st.sampled_from(FRAGMENTS), min_size=1))
def test_the_index_equals_the_list_of_all_texts(pattern: str, tokens: set[bytes]) -> None:
    """Every prefix that tokens can reach, every token, both ways; tokens may end inside characters and lack bytes."""
    vocabulary = vocabulary_of(*sorted(tokens))
    oracle = TextOracle(pattern, vocabulary)
    try:
        fsm = compiled(pattern, vocabulary)
    except UnsatisfiableConstraintError:
        assert not oracle.alive(b"")
        return
    assert oracle.alive(b"")
    queue = deque([(b"", 0)])
    seen = {b""}
    while queue:
        prefix, state = queue.popleft()
        assert allowed_ids(fsm, state) == oracle.allowed(prefix), (pattern, prefix)
        for token_id, spelled in enumerate(vocabulary.token_bytes):
            following = fsm.next_state(state, token_id)
            assert (following != DEAD) == (token_id in oracle.allowed(prefix) - {EOS})
            if following != DEAD and prefix + spelled not in seen:
                seen.add(prefix + spelled)
                queue.append((prefix + spelled, following))


def naive_index(fsm: RegexFSM) -> dict[int, set[int]]:
    """Per live state the tokens it allows, token by token and byte by byte, as upstream walked them."""
    table = fsm.dfa.table.tolist()
    ends: dict[int, dict[int, int]] = {}
    stack = [0]
    while stack:
        state = stack.pop()
        if state in ends:
            continue
        ends[state] = {}
        for token_id, spelled in enumerate(fsm.vocabulary.token_bytes):
            here = state
            for byte in spelled:
                here = table[here][byte] if here != DEAD else DEAD
            if spelled and here != DEAD:
                ends[state][token_id] = here
                stack.append(here)
    live = {state for state in ends if fsm.accepts(state)}
    while more := {state for state in ends if state not in live and live & set(ends[state].values())}:
        live |= more
    return {state: {token for token, end in ends[state].items() if end in live} for state in live}


@pytest.mark.parametrize("pattern", [r"(a|é)*中", r"[^b]{1,4}(ab)*", r".{0,9}", r"(ab?|中)+", r"((a|b)(é|ø)*){2,5}",
                                     r"\w+|中*"])
def test_the_index_of_an_endless_language_equals_the_naive_walk(pattern: str) -> None:
    draw = random.Random(pattern)
    for _ in range(12):
        tokens = draw.sample(FRAGMENTS, draw.randint(4, len(FRAGMENTS)))
        try:
            fsm = compiled(pattern, vocabulary_of(*tokens))
        except UnsatisfiableConstraintError:
            continue
        expected = naive_index(fsm)
        assert set(fsm.rows) == set(expected)
        for state, allowed in expected.items():
            assert allowed_ids(fsm, state) - {EOS} == allowed


def test_more_states_than_are_walked_at_once_make_the_same_index() -> None:
    fsm = compiled(r"(ab|ba){1,60}(c|)", vocabulary_of(b"a", b"b", b"ab", b"ba", b"bab", b"abba", b"c"))
    assert len(fsm.rows) > 100
    assert {state: allowed_ids(fsm, state) - {EOS} for state in fsm.rows} == naive_index(fsm)


def test_a_dead_end_is_never_offered_and_eos_never_allowed_in_one() -> None:
    """Museum row 2. Upstream allowed `a`, then only EOS: the answer was "a", which does not match."""
    fsm = compiled("ax|b", vocabulary_of(b"a", b"b"))
    assert allowed_ids(fsm, 0) == {2}
    assert allowed_ids(fsm, fsm.next_state(0, 2)) == {EOS}


def test_a_dead_end_far_behind_is_seen_at_once() -> None:
    fsm = compiled("(ab){40}x|b", vocabulary_of(b"a", b"b", b"ab"))
    assert allowed_ids(fsm, 0) == {2}


def test_a_dead_end_inside_a_character_is_never_offered() -> None:
    """C3 alone begins é, and nothing ends it."""
    assert allowed_ids(compiled("é|b", vocabulary_of(b"\xc3", b"b")), 0) == {2}
    assert allowed_ids(compiled("é|b", vocabulary_of(b"\xc3", b"b", b"\xa9")), 0) == {1, 2}


def test_a_loop_without_a_way_out_is_a_dead_end() -> None:
    assert allowed_ids(compiled("a*x|b", vocabulary_of(b"a", b"b")), 0) == {2}


@pytest.mark.parametrize(("pattern", "tokens", "message"), [
    ("x\x04y", [b"x", b"y"], "no token has the byte 04"),
    ("x(\x04\x06|\x13)y", [b"x", b"y"], "no token has the byte 13"),
    ("é", [b"\xc3", b"a"], "no token has the byte A9"),
    ("ab", [b"aab", b"b"], "no sequence of tokens"),
    ("ab|c\x04", [b"aab", b"b", b"c"], "no sequence of tokens"),
])
def test_a_language_that_no_tokens_spell_is_refused_with_the_reason(pattern: str, tokens: list[bytes],
                                                                    message: str) -> None:
    with pytest.raises(UnsatisfiableConstraintError, match=message):
        compiled(pattern, vocabulary_of(*tokens))


def test_no_vocabulary_at_all_still_spells_the_empty_text() -> None:
    assert allowed_ids(compiled("a?", vocabulary_of()), 0) == {EOS}
    with pytest.raises(UnsatisfiableConstraintError, match="no token has the byte 61"):
        compiled("a", vocabulary_of())


def test_control_tokens_stop_tokens_and_padding_are_never_text() -> None:
    """Id 2 is a control token and id 3 a stop token, although both carry bytes here; ids from 5 on are padding."""
    vocabulary = Vocabulary((b"", b"a", b"a", b"a", b"a"), control_ids=frozenset({0, 2}), stop_ids=frozenset({0, 3}),
                            width=9)
    fsm = compiled("a{1,2}", vocabulary)
    assert allowed_ids(fsm, 0) == {1, 4}
    assert allowed_ids(fsm, fsm.next_state(0, 1)) == {0, 1, 3, 4}
    for token_id in (-1, 0, 2, 3, 5, 8, 9, 10**6):
        assert fsm.next_state(0, token_id) == DEAD


def test_tokens_with_equal_bytes_are_allowed_together() -> None:
    assert allowed_ids(compiled("ab", vocabulary_of(b"a", b"ab", b"a", b"ab", b"b")), 0) == {1, 2, 3, 4}


def test_equal_states_share_one_row_of_bits() -> None:
    fsm = compiled("a{0,30}", vocabulary_of(b"a"))
    assert len(fsm.rows) == 31
    assert len(fsm.masks) == 2


def test_the_trie_is_built_once_for_all_regexes() -> None:
    """Museum row 3."""
    reduced = ReducedVocabulary(vocabulary_of(b"a", b"b"))
    for pattern in ("a", "b", "a|b"):
        build_fsm(byte_automaton(pattern), reduced, Budget(GrammarLimits()))
    assert reduced.builds == 1


def test_no_time_left_ends_the_index() -> None:
    reduced = ReducedVocabulary(vocabulary_of(*FRAGMENTS))
    with pytest.raises(GrammarTimeoutError, match="took longer"):
        build_fsm(byte_automaton(".{0,300}"), reduced, Budget(GrammarLimits(compile_timeout=0.0)))


def test_the_index_reports_progress_up_to_its_end() -> None:
    seen: list[tuple[int, int]] = []
    budget = Budget(GrammarLimits(), lambda _what, done, total: seen.append((done, total)))
    fsm = build_fsm(byte_automaton("a{0,99}"), ReducedVocabulary(vocabulary_of(b"a", b"aaa")), budget)
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert seen[-1] == (len(fsm.dfa.table), len(fsm.dfa.table))
