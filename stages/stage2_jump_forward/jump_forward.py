"""The compressed FSM: from which states only one text leads on, and how such a text is spelled.

Upstream's first map was one of characters. It took "one way on" for certainty also where the text may stop
(museum rows 12 and 13, mended in e205527cb1, #1084), failed on wildcards (row 14) and could not describe half a
character (row 16; both mended by the byte-level map of 9c902b1954, #517). This one is over bytes and right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton
from shared_runtime.errors import JumpforwardError
from shared_runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class JumpForwardMap:
    """Per state with one way on, (byte, next state). An accepting state has none: stopping is a way on, too."""

    edges: dict[int, tuple[int, int]]

    @classmethod
    def of(cls, dfa: ByteAutomaton) -> JumpForwardMap:
        """The map of any automaton; empty where nothing is forced."""
        ways = dfa.table != DEAD
        single = np.flatnonzero((ways.sum(axis=1) == 1) & ~dfa.accepting)
        byte = ways[single].argmax(axis=1)
        return cls(dict(zip(single.tolist(), zip(byte.tolist(), dfa.table[single, byte].tolist(), strict=True),
                            strict=True)))

    def forced(self, state: int) -> bytes:
        """The bytes that every text goes on with from `state`. They may begin or end inside a character."""
        text, seen = bytearray(), set[int]()
        while state in self.edges and state not in seen:  # a circle is a dead end: no text comes out of it
            seen.add(state)
            byte, state = self.edges[state]
            text.append(byte)
        return bytes(text)

    @property
    def nbytes(self) -> int:
        """Memory of the map in bytes, about."""
        return 200 * len(self.edges)


def retokenize(tokenizer: Tokenizer, prompt_ids: list[int], text: str) -> list[int] | None:
    """Ids for an answer of `text` behind the prompt, or None where there are none. Never raises (museum row 19).

    The answer is encoded with the prompt's text from its last control token on, as the model's training text was.
    Those ids must come out first, bit for bit; upstream compared the last one only. If prompt and answer grow
    together (a prompt that ends in a blank), there is no answer (row 17). A prompt that is not what its own text
    encodes to says nothing about the seam; then the answer is encoded alone.
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
