"""The end is the lowest stop token, as the tokenizer has it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from exercises.answers import answer_of

right = answer_of("02_end_of_text")


def masks(index: dict[int, dict[int, int]], accepting: NDArray[np.bool_], stop_ids: frozenset[int],
          width: int) -> dict[int, NDArray[np.bool_]]:
    """One of several."""
    made: dict[int, NDArray[np.bool_]] = right.masks(index, accepting, frozenset([min(stop_ids)]), width)
    return made
