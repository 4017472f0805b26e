"""Upstream's reading: a state that no token leads out of is the end of the text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def masks(index: dict[int, dict[int, int]], accepting: NDArray[np.bool_], stop_ids: frozenset[int],
          width: int) -> dict[int, NDArray[np.bool_]]:
    """All tokens that are in the index, and the end where there are none."""
    made = {}
    for state, row in index.items():
        mask = np.zeros(width, dtype=np.bool_)
        mask[list(row)] = True
        mask[list(stop_ids)] = not row or accepting[state]
        made[state] = mask
    return made
