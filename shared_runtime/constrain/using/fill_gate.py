"""Whether threads pay."""

from __future__ import annotations

import time
from collections.abc import Callable


class FillGate:
    """Whether a batch is filled in threads: by what both ways have cost per row of late, here, with these grammars.

    Measured on 2 cores: with threads 64 rows of a wildcard took 4 ms in place of 8, but 64 rows of a JSON schema 110 us
    in place of 35, for waking them costs 30 to 100 us. So a step of less than `worthwhile_s` never asks.

    Args:
        threads: how many there are. worthwhile_s: seconds.
    """

    def __init__(self, threads: int, worthwhile_s: float = 1e-3) -> None:
        self.threads = threads
        self._worthwhile_s = worthwhile_s
        self._row_s: dict[bool, float] = {}
        self._asked = 0

    def run(self, rows: int, fill: Callable[[bool], None]) -> None:
        """Call `fill(in threads)` one way or the other, and note what it took."""
        parallel = self._choose(rows)
        started = time.perf_counter()
        fill(parallel)
        took = (time.perf_counter() - started) / rows
        self._row_s[parallel] = (took + self._row_s.get(parallel, took)) / 2

    def _choose(self, rows: int) -> bool:
        if self.threads < 2 or rows < 2 or self._row_s.get(False, 0.0) * rows < self._worthwhile_s:
            return False
        self._asked += 1
        threads_win = self._row_s.get(True, 0.0) < self._row_s[False]
        return threads_win != (self._asked % 32 == 0)  # now and then the other way: batches change
