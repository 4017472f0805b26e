"""The compressed FSM, as history kept it when the copied files went: it needs an FSM over characters and no index.

Index and map are built by two libraries and number different states. So the map has a state of its own per request,
and ids that a jump writes must also pass the index.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton, spell_in_utf8
from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.errors import JumpforwardError
from shared_runtime.tokenizer import Tokenizer

CharFSM = tuple[dict[int, list[int]], int, list[dict[int, int]], set[int]]
"""Code points of each key, the key of all others, per state key -> next state, accepting states; 0 is the start."""


@dataclass(frozen=True)
class JumpForwardMap:
    """An automaton over bytes, and per state with one way on, (byte, next state). An accepting state has none."""

    dfa: ByteAutomaton
    edges: dict[int, tuple[int, int]]

    @classmethod
    def of(cls, fsm: CharFSM, budget: Budget) -> JumpForwardMap:
        """The map of interegular's FSM. Raises GrammarTimeoutError past a limit of `budget`."""
        listed, others, rows, finals = fsm
        classes = {key: CharSet.of((code, code) for code in codes) for key, codes in listed.items()}
        named = CharSet.of(interval for chars in classes.values() for interval in chars.intervals)
        classes[others] = classes.get(others, CharSet(())) | named.complement()
        intervals = sorted((first, last, key) for key, chars in classes.items() for first, last in chars.intervals)
        dfa = spell_in_utf8(intervals, rows, finals, budget)
        ways = dfa.table != DEAD
        single = np.flatnonzero((ways.sum(axis=1) == 1) & ~dfa.accepting)
        byte = ways[single].argmax(axis=1)
        return cls(dfa, dict(zip(single.tolist(), zip(byte.tolist(), dfa.table[single, byte].tolist(), strict=True),
                                 strict=True)))

    @property
    def nbytes(self) -> int:
        """Memory of the tables, in bytes."""
        return self.dfa.table.nbytes + 64 * len(self.edges)

    def forced(self, state: int) -> bytes:
        """The bytes that every text goes on with from `state`. They may begin or end inside a character."""
        text, seen = bytearray(), set[int]()
        while state in self.edges and state not in seen:  # a circle is a dead end: no text comes out of it
            seen.add(state)
            byte, state = self.edges[state]
            text.append(byte)
        return bytes(text)


def retokenize(tokenizer: Tokenizer, prompt_ids: list[int], text: str) -> list[int] | None:
    """Ids for an answer of `text` behind the prompt, or None where there are none. Never raises (museum row 19).

    The answer is encoded with the prompt's text from its last control token on, as the model's training text was.
    Those ids must come out first, bit for bit, or there is no answer (row 17: a prompt that ends in a blank). A prompt
    that is not what its own text encodes to says nothing about the seam; then the answer is encoded alone.
    """
    vocabulary = tokenizer.vocabulary
    control = [index for index, token_id in enumerate(prompt_ids) if token_id in vocabulary.control_ids]
    behind = prompt_ids[control[-1] + 1:] if control else prompt_ids
    try:
        try:
            before = vocabulary.decode(behind).decode()
        except UnicodeDecodeError:  # ids from elsewhere, that end inside a character
            return tokenizer.spell(text)
        ids = tokenizer.spell(before + text)
        if ids[:len(behind)] == behind:
            return ids[len(behind):]
        return tokenizer.spell(text) if tokenizer.spell(before) != behind else None
    except JumpforwardError:  # a byte that no token spells alone
        return None
