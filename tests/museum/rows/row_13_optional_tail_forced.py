"""Row 13: that the text may stop here is not counted as a way on."""

from __future__ import annotations

import numpy as np

from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton
from stages.stage2_jump_forward import decoder
from stages.stage2_jump_forward.jump_forward import JumpForwardMap
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import REAL_MAPS, Forced, ask, forced_by


class StoppingIsNoWayOn(JumpForwardMap):
    """Specimen of `JumpForwardMap`: accepting states jump like any other."""

    @classmethod
    def of(cls, dfa: ByteAutomaton) -> StoppingIsNoWayOn:
        """Every state with one outgoing byte."""
        ways = dfa.table != DEAD
        single = np.flatnonzero(ways.sum(axis=1) == 1).tolist()
        only = {state: int(ways[state].argmax()) for state in single}
        return cls({state: (byte, int(dfa.table[state, byte])) for state, byte in only.items()})


def an_accepting_state_forces_nothing(forced: Forced, bench: Bench) -> None:
    """`ab(cde)?` behind "ab": the text may end."""
    tail = forced(bench, "ab(cde)?", b"ab")
    hold(tail == b"", f"behind 'ab', which is complete, {tail.decode()!r} is forced")
    hold(forced(bench, "ab(cde)?", b"abc") == b"de", "behind 'abc' nothing is forced")


def scenario(bench: Bench) -> None:
    """An optional tail, and a model that would rather stop."""
    engine = bench.engine(2)
    result = bench.run(engine, [ask("y(cde)?", logit_bias={0: 200.0})])[0]
    hold(result.text == "y", f"the optional tail was forced: {result.text!r}")


EXHIBIT: Exhibit[Forced] = Exhibit(
    13, forced_by(StoppingIsNoWayOn.of), REAL_MAPS, an_accepting_state_forces_nothing, "'cde' is forced",
    Injection(decoder, "JumpForwardMap", StoppingIsNoWayOn, scenario, "the optional tail was forced: 'ycde'"))
