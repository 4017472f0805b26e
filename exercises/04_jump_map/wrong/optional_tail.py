"""One way on is certainty, also where the text may stop."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared_runtime.constrain.regex.byte_automaton import ByteAutomaton
from tests.museum.rows.row_13_optional_tail_forced import StoppingIsNoWayOn


def forced(table: NDArray[np.int32], accepting: NDArray[np.bool_], state: int) -> bytes:
    """The museum's specimen, asked about one state."""
    return StoppingIsNoWayOn.of(ByteAutomaton(table, accepting)).forced(state)
