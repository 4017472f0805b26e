"""A state is good if it accepts or some token leads out of it: a dead end is seen one step ahead."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def masks(index: dict[int, dict[int, int]], accepting: NDArray[np.bool_], stop_ids: frozenset[int],
          width: int) -> dict[int, NDArray[np.bool_]]:
    """One round of what needs several."""
    good = {state for state, row in index.items() if row or accepting[state]}
    good = {state for state in good if accepting[state] or not good.isdisjoint(index[state].values())}
    if 0 not in good:
        raise ValueError("no text")
    made = {}
    for state in good:
        mask = np.zeros(width, dtype=np.bool_)
        mask[[token_id for token_id, target in index[state].items() if target in good]] = True
        mask[list(stop_ids)] = accepting[state]
        made[state] = mask
    return made
