"""Ways are looked up in a table of single characters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared_runtime.constrain.regex.byte_automaton import ByteAutomaton
from tests.museum.rows.row_14_wildcard_kills_the_map import ListedCharactersOnly


def forced(table: NDArray[np.int32], accepting: NDArray[np.bool_], state: int) -> bytes:
    """The museum's specimen, asked about one state."""
    return ListedCharactersOnly.of(ByteAutomaton(table, accepting)).forced(state)
