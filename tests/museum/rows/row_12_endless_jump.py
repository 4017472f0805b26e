"""Row 12: an accepting state with one edge, to itself, looks as if only one text could follow."""

from __future__ import annotations

import numpy as np

from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton
from stages.stage2_jump_forward import decoder
from stages.stage2_jump_forward.jump_forward import JumpForwardMap
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import REAL_MAPS, Forced, ask, forced_by, preferring

ENDLESS = 1000
"""Bytes after which a jump without end is cut short here; upstream's went on until the process was killed."""


class MapWithCircles(JumpForwardMap):
    """Specimen of `JumpForwardMap`: one way on is certainty, and nothing watches for a circle."""

    @classmethod
    def of(cls, dfa: ByteAutomaton) -> MapWithCircles:
        """Every state with one outgoing byte."""
        ways = dfa.table != DEAD
        single = np.flatnonzero(ways.sum(axis=1) == 1).tolist()
        only = {state: int(ways[state].argmax()) for state in single}
        return cls({state: (byte, int(dfa.table[state, byte])) for state, byte in only.items()})

    def forced(self, state: int) -> bytes:
        """Follow the edges while there are any."""
        text = bytearray()
        while state in self.edges and len(text) < ENDLESS:
            byte, state = self.edges[state]
            text.append(byte)
        return bytes(text)


def a_jump_ends(forced: Forced, bench: Bench) -> None:
    """`[-+]?[0-9]+[ ]*` behind "7 ": the blanks may end there, so nothing is forced."""
    blanks = forced(bench, "[-+]?[0-9]+[ ]*", b"7 ")
    hold(blanks == b"", f"behind '7 ' {len(blanks)} blanks are forced")


def scenario(bench: Bench) -> None:
    """A digit and blanks, by a model that likes blanks for a while."""
    engine = bench.engine(2)
    wanted = ask("[0-9] *", max_new_tokens=12, logit_bias=preferring(engine, "7") | {0: 100.0})
    result = bench.run(engine, [wanted])[0]
    hold(result.counts["jumped"] == 0, f"{result.counts['jumped']} blanks were forced, up to the limit")


EXHIBIT: Exhibit[Forced] = Exhibit(
    12, forced_by(MapWithCircles.of), REAL_MAPS, a_jump_ends, "1000 blanks are forced",
    Injection(decoder, "JumpForwardMap", MapWithCircles, scenario, "blanks were forced, up to the limit"))
