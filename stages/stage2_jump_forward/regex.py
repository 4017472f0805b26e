"""From a regex to a deterministic automaton over bytes.

Upstream let interegular parse the pattern, build the FSM and minimise it, and then renumbered its states. The road
is the same here, on our own feet: the dialect's tree, an FSM over an alphabet table of characters, then their bytes.
"""

from __future__ import annotations

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import ByteAutomaton, spell_in_utf8
from shared_runtime.constrain.regex.char_fsm import make_deterministic_fsm
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.errors import ConstraintError

__all__ = ["make_byte_automaton", "make_deterministic_fsm"]


def make_byte_automaton(pattern: str, budget: Budget) -> ByteAutomaton:
    """The automaton of a pattern; equal patterns give equal numbers.

    Raises:
        GrammarSyntaxError, UnsupportedConstraintError: the dialect does not have the pattern.
        GrammarTimeoutError: past a limit of `budget`.
    """
    try:
        fsm = make_deterministic_fsm(normalise(pattern).tree, budget)
    except RecursionError:
        raise ConstraintError("the pattern is nested too deep", where="constraint", fix="take out groups") from None
    return spell_in_utf8(fsm.alphabet.intervals, fsm.rows, fsm.finals, budget)
