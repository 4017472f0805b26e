"""Automata, vocabularies and checks of exercise 1. What is right is asked of stage 1's own index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exercises.bench import bench, in_place
from jumpforward.exercises.case import Row, expect, plain, sides
from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import ByteAutomaton
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.vocabulary import Vocabulary
from stages.stage1_copied_fsm import decoder
from stages.stage1_copied_fsm.fsm import RegexFSM, build_fsm
from stages.stage1_copied_fsm.tokenizer import ReducedVocabulary
from tests.museum.bench import vocabulary_of
from tests.museum.jumps import ask, automaton

Index = dict[int, dict[int, int]]
TokenIndex = Callable[[object, tuple[bytes, ...]], Index]

BYTES = vocabulary_of(*(bytes([byte]) for byte in range(256)), b"ab", b"abc", b"bc", b"\xc3\xa9", b"1", b"12", b"a1",
                      b"\xe9\x9c", b"\x9c\x8d", b' "', b'": ')
"""Every byte, and some tokens of several."""


def names(vocabulary: Vocabulary) -> list[str]:
    """What each token spells, as one would write it."""
    return [repr(spelled) if spelled else "a control token" for spelled in vocabulary.token_bytes]


def the_index_is_that_of_stage_1(part: TokenIndex, pattern: str, vocabulary: Vocabulary = BYTES) -> None:
    """Same rows, same tokens, same targets; the message names the shortest way to the state."""
    dfa = automaton(pattern)
    real = build_fsm(dfa, ReducedVocabulary(vocabulary), Budget(GrammarLimits()))
    before = dfa.table.copy()
    made = part(dfa.table, vocabulary.token_bytes)
    expect(type(made) is dict, f"it must return a dict, and returns {type(made).__name__}")
    index: Index = plain(made)
    expect(bool((dfa.table == before).all()), "it wrote into the table, which is the caller's")
    ways = {0: b""}
    pending = [0]
    while pending:  # breadth first: the first way to a state is a shortest one
        state = pending.pop(0)
        where = f"regex {pattern!r}, behind {ways[state]!r} (state {state})"
        expect(state in index, f"{where}: the state has no row")
        wanted = {token_id: real.next_state(state, token_id) for token_id, spelled in enumerate(vocabulary.token_bytes)
                  if real.next_state(state, token_id) >= 0 and spelled}
        differs = sides(index[state], wanted, names(vocabulary))
        expect(not differs, f"{where}: {differs}")
        for token_id, target in wanted.items():
            got = index[state][token_id]
            expect(got == target, f"{where}: token {token_id} ({names(vocabulary)[token_id]}) leads to {target}, "
                                  f"yours says {got}")
            if target not in ways:
                ways[target] = ways[state] + vocabulary.token_bytes[token_id]
                pending.append(target)
    more = sorted(set(index) - set(ways))
    expect(not more, f"regex {pattern!r}: state {more[:1]} has a row, but no sequence of tokens leads to it")


def stage_with(part: TokenIndex) -> Callable[[ByteAutomaton, ReducedVocabulary, Budget], RegexFSM]:
    """A `build_fsm` that takes its rows from the learner's index."""

    def build(dfa: ByteAutomaton, reduced: ReducedVocabulary, budget: Budget) -> RegexFSM:
        vocabulary = reduced.vocabulary
        index = part(dfa.table, vocabulary.token_bytes)
        masks = []
        for row in index.values():
            mask = np.zeros(vocabulary.width, dtype=np.bool_)
            mask[list(row)] = True
            masks.append(np.packbits(mask))
        return RegexFSM(vocabulary, dfa, {state: row for row, state in enumerate(index)}, masks)

    return build


def an_engine_answers(part: TokenIndex, pattern: str) -> None:
    """One request through stage 1, with the learner's index and with its own: the same tokens."""
    with bench() as made:
        wanted = made.run(made.engine(1), [ask(pattern, max_new_tokens=12)])[0]
        with in_place(decoder, "build_fsm", stage_with(part)):
            got = made.run(made.engine(1), [ask(pattern, max_new_tokens=12)])[0]
    expect(got.error is None, f"in stage 1, regex {pattern!r}: the request ended with an error: {got.error}")
    expect(got.token_ids == wanted.token_ids,
           f"in stage 1, regex {pattern!r}: the answer is {got.text!r}, expected {wanted.text!r}")


def picture(part: TokenIndex) -> list[Row]:
    """Two small automata, state by state."""
    rows = []
    for pattern in ("ab|abc", "é|è"):
        dfa = automaton(pattern)
        real = build_fsm(dfa, ReducedVocabulary(BYTES), Budget(GrammarLimits()))
        index = part(dfa.table, BYTES.token_bytes)
        for state in sorted(real.rows):
            wanted = {token_id: real.next_state(state, token_id) for token_id in range(len(BYTES))
                      if real.next_state(state, token_id) >= 0}
            rows.append(Row(f"{pattern}  state {state}", _drawn(index.get(state)), _drawn(wanted)))
    return rows


def _drawn(row: dict[int, int] | None) -> str:
    if row is None:
        return "no row"
    return ", ".join(f"{names(BYTES)[token_id]} -> {row[token_id]}" for token_id in sorted(row)) or "nothing"
