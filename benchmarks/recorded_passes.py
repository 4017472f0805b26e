"""The decode passes of a run: what the loop takes for them, and what they take alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from unittest.mock import patch

from torch import Tensor

from benchmarks.serving import Run
from shared_runtime.engine import Engine
from shared_runtime.forward_batch import ForwardBatch, ForwardMode


class RecordedPasses:
    """Remembers the decode passes that an engine runs, and runs them again.

    Behind the run, a pass reads and writes the same places as in it: nothing has taken them meanwhile.
    """

    def __init__(self, engine: Engine) -> None:
        self._runner = engine.parts.runner
        self._batches: list[ForwardBatch] = []
        self._began = 0.0

    def turns(self, run: Callable[[], Run]) -> float:
        """Seconds a decode pass of `run` in the loop, from the first one's start to the end."""
        self._batches, forward = [], self._runner.forward

        def recording(batch: ForwardBatch) -> Tensor:
            if batch.mode is ForwardMode.DECODE:
                if not self._batches:
                    self._began = time.perf_counter()
                self._batches.append(batch)
            return forward(batch)

        with patch.object(self._runner, "forward", recording):
            run()
        return (time.perf_counter() - self._began) / len(self._batches)

    def bare(self) -> float:
        """Seconds a pass."""
        started = time.perf_counter()
        for batch in self._batches:
            self._runner.forward(batch)
        return (time.perf_counter() - started) / len(self._batches)
