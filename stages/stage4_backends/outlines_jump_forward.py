"""The jump map of the outlines backend: from which states of a regex's automaton only one text leads on.

Built from our own automaton over bytes. Upstream's was built from Outlines' helpers, whose arguments #1752 swapped:
raw bytes went in as token ids, so jumps silently stopped (museum row 33, mended in ba069a24d3, #2018).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton


@dataclass(frozen=True)
class OutlinesJumpForwardMap:
    """The automaton, and per state with one way on, (byte, next state).

    An accepting state has no such way: stopping is a way on, too (museum row 13).
    """

    dfa: ByteAutomaton
    edges: dict[int, tuple[int, int]]

    @classmethod
    def of(cls, dfa: ByteAutomaton) -> OutlinesJumpForwardMap:
        """The map of any automaton; empty where nothing is forced."""
        ways = dfa.table != DEAD
        single = np.flatnonzero((ways.sum(axis=1) == 1) & ~dfa.accepting)
        byte = ways[single].argmax(axis=1)
        return cls(dfa, dict(zip(single.tolist(), zip(byte.tolist(), dfa.table[single, byte].tolist(), strict=True),
                                 strict=True)))

    @property
    def nbytes(self) -> int:
        """Memory of the tables, in bytes."""
        return self.dfa.table.nbytes + 64 * len(self.edges)

    def forced(self, state: int) -> tuple[bytes, int]:
        """The bytes that every text goes on with from `state`, and the state behind them.

        They may begin or end inside a character. A circle of single ways is a dead end and ends the walk
        (museum row 12).
        """
        text, seen = bytearray(), set[int]()
        while state in self.edges and state not in seen:
            seen.add(state)
            byte, state = self.edges[state]
            text.append(byte)
        return bytes(text), state
