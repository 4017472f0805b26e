"""Exercise 4: a jump map, with accepting states and circles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DEAD = -1  # in the table: no way on


def forced(table: NDArray[np.int32], accepting: NDArray[np.bool_], state: int) -> bytes:
    """What every complete text goes on with from `state`; b"" where there is a choice."""
    text, seen = bytearray(), set[int]()
    while not accepting[state] and state not in seen:
        ways = np.flatnonzero(table[state] != DEAD)
        if len(ways) != 1:
            break
        seen.add(state)
        text.append(int(ways[0]))
        state = int(table[state, ways[0]])
    return bytes(text)
