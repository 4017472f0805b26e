"""A row made by hand, for what is done with rows: no test needs to measure one for that."""

from __future__ import annotations

from benchmarks.ledger import Interval, Measurement
from benchmarks.plan import Cell

PERCENTILES = {"p50": 1.0, "p90": 2.0, "p99": 3.0, "p99.9": 4.0}


def row(stage: int, mode: str, *, ratio: Interval | None, workload: str = "light", backend: str = "xgrammar",
        **counts: int) -> Measurement:
    """40 tokens, all of them sampled, but for what `counts` says."""
    known = {"tokens": 40, "steps": 40, "sampled": 40, "masks": 40} | counts
    return Measurement(
        workload=workload, stage=stage, backend=backend, mode=mode, dtype="fp32", batch=1, graphs=False,
        counts=known, step_ms=PERCENTILES, tpot_ms=50.0, tokens_per_s=20.0,
        denominators={"ms_per_byte": 12.345, "free_tpot_ms": 40.0, "bare_forward_ms": 38.0, "roofline_ms": 30.0,
                      "reencoded_share": 0.25, "requeue_time_share": 0.04, "forced_share": 0.5, "speedup_bound": 2.0},
        times={"total_ms": PERCENTILES, "ttft_ms": PERCENTILES}, ratios={} if ratio is None else {"over_free": ratio},
        quality={"canonical_share": 0.796, "nll_per_byte": 1.233, "allowed_mass": 0.5}, texts=["a|b"])


def row_of(cell: Cell) -> Measurement:
    """A row of this cell, in the place of a measurement."""
    return row(cell.target.spec.id, cell.mode.name, ratio=None, workload=cell.workload.name,
               backend=cell.target.backend)
