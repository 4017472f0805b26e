"""Exercise 1: a token index over bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DEAD = -1  # in the table: no way on


def token_index(table: NDArray[np.int32], token_bytes: tuple[bytes, ...]) -> dict[int, dict[int, int]]:
    """Per state that tokens lead to, the tokens that may come next, and the state behind each.

    Args:
        table: [states, 256] the state behind a byte, `DEAD` where there is no way on; state 0 is the start.
        token_bytes: per token id what it spells; b"" for a control token, which is never text.
    """
    raise NotImplementedError("TODO: spell each token, byte by byte, from each state that you reach")
