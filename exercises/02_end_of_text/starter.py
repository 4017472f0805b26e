"""Exercise 2: the end only where the text is complete."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def masks(index: dict[int, dict[int, int]], accepting: NDArray[np.bool_], stop_ids: frozenset[int],
          width: int) -> dict[int, NDArray[np.bool_]]:
    """Per state from where a text can be completed, what may come next: [width] bool.

    Args:
        index: per state, token id -> the state behind it; state 0 is the start.
        accepting: [states] whether the text may end there. stop_ids: every id that ends an answer.
        width: how many ids the logits have.

    Raises:
        ValueError: no text can be written at all.
    """
    raise NotImplementedError("TODO: find the states from where an accepting one can be reached; then fill the masks")
