"""Comparisons in pairs: two sides in turn and in one process, now the one first and now the other."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from benchmarks.ledger import Interval
from benchmarks.serving import serve
from benchmarks.workloads import Workload, all_workloads
from shared_runtime.assembly import LoadedModel
from shared_runtime.config import EngineConfig
from shared_runtime.engine import Engine
from shared_runtime.policy import BackendJump, StageOptions

Seconds = Callable[[], float]


@dataclass(frozen=True, slots=True)
class OverheadRow:
    """One comparison.

    Attributes:
        part, what: which. dtype, threads, batch: of both sides.
        ms, other_ms: the medians of both sides: a pass, a token, or a whole answer, as the part says.
        ratio: what `part` says. aim: the bound it was to keep; None where there was none.
        clock: `wall`, or `cpu` for time on the processor.
    """

    part: str
    what: str
    dtype: str
    threads: int
    batch: int
    ms: float
    other_ms: float
    ratio: Interval
    aim: float | None = None
    clock: str = "wall"


@dataclass(slots=True)
class Paired:
    """Measures one side by the other.

    Attributes:
        config: of every engine; stage, backend, overlap and options are each comparison's own. pairs: of a comparison.
        clock: what the rows say they were measured by. workloads: all there are, by name.
    """

    config: EngineConfig
    pairs: int
    clock: str = "wall"
    workloads: dict[str, Workload] = field(default_factory=lambda: {one.name: one for one in all_workloads()})
    _loaded: LoadedModel | None = field(default=None, init=False)

    def engine(self, stage: int, backend: str | None = None, *, overlap: bool = False, jump: BackendJump = "none",
               trace: bool = False) -> Engine:
        """An engine; the model is loaded once."""
        engine = Engine(replace(self.config, stage=stage, backend=backend, overlap=overlap, trace=trace or None,
                                options=StageOptions(backend_jump=jump)), loaded=self._loaded)
        self._loaded = engine.parts.loaded
        return engine

    def row(self, part: str, what: str, batch: int, one: Seconds, other: Seconds,
            aim: float | None = None) -> OverheadRow:
        """One by other."""
        times: tuple[list[float], list[float]] = ([], [])
        for pair in range(self.pairs):
            for side in (0, 1) if pair % 2 == 0 else (1, 0):
                times[side].append((one, other)[side]())
        ratios = [mine / theirs for mine, theirs in zip(*times, strict=True)]
        return OverheadRow(part, what, self.config.dtype, self.config.thread_count, batch,
                           round(1e3 * statistics.median(times[0]), 3), round(1e3 * statistics.median(times[1]), 3),
                           Interval.of(ratios), aim, self.clock)


def seconds_of(engine: Engine, workload: Workload, batch: int) -> float:
    """Until every answer of the workload is there."""
    return serve(engine, workload, batch).seconds
