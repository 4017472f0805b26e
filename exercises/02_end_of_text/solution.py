"""Exercise 2: the end only where the text is complete."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def masks(index: dict[int, dict[int, int]], accepting: NDArray[np.bool_], stop_ids: frozenset[int],
          width: int) -> dict[int, NDArray[np.bool_]]:
    """Per state from where a text can be completed, what may come next: [width] bool."""
    live = {state for state in index if accepting[state]}
    grown = True
    while grown:
        found = {state for state, row in index.items() if state not in live and not live.isdisjoint(row.values())}
        live |= found
        grown = bool(found)
    if 0 not in live:
        raise ValueError("no sequence of tokens spells a text of the language")
    made = {}
    for state in live:
        mask = np.zeros(width, dtype=np.bool_)
        mask[[token_id for token_id, target in index[state].items() if target in live]] = True
        mask[list(stop_ids)] = accepting[state]
        made[state] = mask
    return made
