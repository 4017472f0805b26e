"""Exercise 1: a token index over bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DEAD = -1  # in the table: no way on


def token_index(table: NDArray[np.int32], token_bytes: tuple[bytes, ...]) -> dict[int, dict[int, int]]:
    """Per state that tokens lead to, the tokens that may come next, and the state behind each."""
    index: dict[int, dict[int, int]] = {}
    pending = [0]
    while pending:
        state = pending.pop()
        if state in index:
            continue
        ends = {token_id: _walk(table, state, spelled) for token_id, spelled in enumerate(token_bytes) if spelled}
        index[state] = {token_id: end for token_id, end in ends.items() if end != DEAD}
        pending += index[state].values()
    return index


def _walk(table: NDArray[np.int32], state: int, spelled: bytes) -> int:
    for byte in spelled:
        if state == DEAD:
            break
        state = int(table[state, byte])
    return state
