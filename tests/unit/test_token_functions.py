"""The functions of tokens tell the same index as spelling every token from every state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.token_functions import TokenFunctions
from shared_runtime.constrain.regex.token_trie import build_trie
from shared_runtime.errors import GrammarTimeoutError, UnsatisfiableConstraintError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.vocabulary import Vocabulary
from stages.stage2_jump_forward.fsm import build_fsm
from stages.stage2_jump_forward.regex import make_byte_automaton
from stages.stage2_jump_forward.tokenizer import ReducedVocabulary
from tests.unit.stage1_helpers import vocabulary_of

PIECES = st.sampled_from(["a", "b", "é", "€", ".", "[ab]", "[^a]", "(a|bé)", "a{1,3}", "(ab)*", "b?", "(é|€)+", "c"])
TOKENS = st.lists(st.sampled_from([b"a", b"b", b"c", b"ab", b"ba", b"abb", "é".encode(), "aé".encode(), b"\xc3",
                                   b"\xa9", b"\xe2\x82", b"\xac", b"x", b"\n"]), min_size=1, max_size=9, unique=True)


def functions_of(pattern: str, vocabulary: Vocabulary) -> TokenFunctions:
    budget = Budget(GrammarLimits())
    found = TokenFunctions.of(make_byte_automaton(pattern, budget), build_trie(vocabulary), budget)
    assert found is not None
    return found


@settings(max_examples=300, deadline=None)
@given(pieces=st.lists(PIECES, min_size=1, max_size=5), tokens=TOKENS)
def test_an_index_agrees_with_its_own_functions_and_no_other_set_of_states_does(
        pieces: list[str], tokens: list[bytes]) -> None:
    """Also where a byte is in no token, and where a token leads into a dead end."""
    pattern, vocabulary, budget = "".join(pieces), vocabulary_of(*tokens), Budget(GrammarLimits())
    dfa = make_byte_automaton(pattern, budget)
    functions = functions_of(pattern, vocabulary)
    for token_id, spelled in enumerate(vocabulary.token_bytes):
        row = functions.of_token[token_id]
        behind = [dfa.walk(state, spelled) if spelled else -1 for state in range(len(dfa.table))]
        assert (functions.targets[row].tolist() if row >= 0 else [-1] * len(behind)) == behind
    try:
        fsm = build_fsm(dfa, ReducedVocabulary(vocabulary), budget)
    except UnsatisfiableConstraintError:
        assert not functions.boundaries(dfa.accepting).any()
        return
    assert set(np.flatnonzero(functions.boundaries(dfa.accepting)).tolist()) == fsm.rows.keys()
    assert functions.agree_with(fsm.rows, fsm.masks, dfa.accepting)
    for state in fsm.rows:
        assert not functions.agree_with({key: row for key, row in fsm.rows.items() if key != state}, fsm.masks,
                                        dfa.accepting)


def test_many_tokens_have_few_functions() -> None:
    words = [bytes([first, second]) for first in b"abcdefgh" for second in b"abcdefgh"]
    functions = functions_of(".{0,9}", vocabulary_of(*words))
    assert functions.targets.shape[0] == 1


def test_the_work_counts() -> None:
    dfa = make_byte_automaton("a{0,300}b", Budget(GrammarLimits()))
    with pytest.raises(GrammarTimeoutError):
        TokenFunctions.of(dfa, build_trie(vocabulary_of(*(b"a" * n for n in range(1, 200)))),
                          Budget(GrammarLimits(compile_timeout=0)))
