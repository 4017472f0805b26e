"""What is forced begins at the next character."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared_runtime.constrain.regex.byte_automaton import ByteAutomaton
from tests.museum.rows.row_16_half_a_character import WholeCharacters


def forced(table: NDArray[np.int32], accepting: NDArray[np.bool_], state: int) -> bytes:
    """The museum's specimen, asked about one state."""
    return WholeCharacters.of(ByteAutomaton(table, accepting)).forced(state)
