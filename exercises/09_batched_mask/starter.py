"""Exercise 9: from a mask per request to one bitmask a batch."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def apply_bitmask(logits: Tensor, bitmask: Tensor, rows: Sequence[int] | None = None) -> None:
    """Write -inf, in place, where the bit is 0; leave everything else as it is.

    Args:
        logits: [n, width] of any floating type. bitmask: [at least n, words] int32, the lowest bit first.
        rows: which rows to touch; all of them by default.
    """
    raise NotImplementedError("TODO: unpack the words of the listed rows, cut to the width, fill")
