"""Looks at the first byte only, and walks as far as it gets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def token_index(table: NDArray[np.int32], token_bytes: tuple[bytes, ...]) -> dict[int, dict[int, int]]:
    """Every token whose beginning fits."""
    index: dict[int, dict[int, int]] = {}
    pending = [0]
    while pending:
        state = pending.pop()
        if state in index:
            continue
        index[state] = {}
        for token_id, spelled in enumerate(token_bytes):
            end = state
            for byte in spelled:
                if table[end, byte] < 0:
                    break
                end = int(table[end, byte])
            if end != state:
                index[state][token_id] = end
        pending += index[state].values()
    return index
