"""`python -m benchmarks.speed`: the forward pass on a CPU, in pairs, beside `transformers` and beside itself.

One process measures one dtype and one number of threads. Two passes run in turn, now the one first and now the other,
so that the machine's drift meets both; a ratio is the median over such pairs.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch

from benchmarks.bare_pass import BarePass, TransformersPass, transformers_model
from benchmarks.denominators import kv_bytes, weight_bytes
from benchmarks.ledger import Interval, Ledger, NotHereError
from benchmarks.report import interval
from benchmarks.speed_shares import shares_of
from shared_runtime.config import DtypeName, EngineConfig
from shared_runtime.engine import Engine
from shared_runtime.model.linear_kind import WeightsName

Pass = Callable[[], object]
ClockName = Literal["wall", "cpu"]
_CLOCKS: dict[ClockName, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
_LONGEST_BATCH = 32
_PROFILED = ((1, 1), (1, 8), (16, 1), (_LONGEST_BATCH, 1))
"""Requests, and positions of each."""


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """One comparison.

    Attributes:
        what: compared with what. dtype, threads, batch, context: of both.
        ms: of our pass, the median. other_ms: of what it is compared with.
        ratio: other by ours, above 1 where ours is faster. target: what was aimed at; None where nothing was.
    """

    what: str
    dtype: str
    threads: int
    batch: int
    context: int
    ms: float
    other_ms: float
    ratio: Interval
    target: float | None


@dataclass(slots=True)
class Speed:
    """Measures the rows of one dtype and one number of threads.

    Attributes:
        dtype, threads, context, model: what runs. pairs: of each comparison. passes: timed passes a side of a pair.
        clock: "wall", or "cpu" for the processor's time of this process: with one thread on a machine that others use
            too it leaves out the time that they ran.
    """

    dtype: DtypeName
    threads: int
    context: int
    model: str
    pairs: int
    passes: int
    clock: ClockName = "wall"

    @contextmanager
    def engine(self, weights: WeightsName) -> Iterator[Engine]:
        """An engine whose linear layers are of one kind."""
        config = EngineConfig(model=self.model, stage=5, dtype=self.dtype, threads=self.threads, weights=weights,
                              kv_pool_tokens=_LONGEST_BATCH * self.context, max_running_requests=_LONGEST_BATCH)
        with Engine(config) as engine:
            yield engine

    def row(self, what: str, batch: int, ours: Pass, other: Pass, target: float | None, *,
            after: Callable[[], None] | None = None) -> SpeedRow:
        """Pairs of `ours` and `other`; `after` follows each pass of `other`, untimed."""
        clock = _CLOCKS[self.clock]

        def side(one: Pass) -> float:
            times = []
            for _ in range(self.passes):
                started = clock()
                one()
                times.append(clock() - started)
                if one is other and after is not None:
                    after()
            return 1e3 * statistics.median(times)

        side(ours), side(other)  # the first passes choose kernels
        own: list[float] = []
        others: list[float] = []
        for pair in range(self.pairs):
            for one, times in ((ours, own), (other, others)) if pair % 2 == 0 else ((other, others), (ours, own)):
                times.append(side(one))
        ratio = Interval.of([theirs / mine for mine, theirs in zip(own, others, strict=True)])
        found = SpeedRow(what, self.dtype, self.threads, batch, self.context, round(statistics.median(own), 2),
                         round(statistics.median(others), 2), ratio, target)
        print(_line(found), flush=True)
        return found

    def beside_transformers(self, engine: Engine) -> list[SpeedRow]:
        """Decode passes of 1 and 16 requests."""
        theirs = transformers_model(self.model, engine.config.torch_dtype)
        rows = []
        for batch, target in ((1, 1.5 if self.dtype == "bf16" else 1.3), (16, 1.1)):
            with BarePass(engine, batch, self.context) as ours:
                peer = TransformersPass(theirs, batch, self.context)
                rows.append(self.row("transformers", batch, ours, peer, target, after=peer.rewind))
        return rows

    def beside_kind(self, engine: Engine, kind: WeightsName, batches: tuple[int, ...],
                    target: float | None = None) -> list[SpeedRow]:
        """Decode passes beside an engine of another kind of weights; of `int8` the ratio is turned round."""
        rows = []
        with self.engine(kind) as other_engine:
            for batch in batches:
                with BarePass(engine, batch, self.context) as own, BarePass(other_engine, batch, self.context) as other:
                    one, two = (other, own) if kind == "int8" else (own, other)
                    what = "int8 beside packed" if kind == "int8" else f"{kind} weights"
                    rows.append(self.row(what, batch, one, two, target if batch == 1 else None))
        return rows

    def eight_positions(self, engine: Engine) -> SpeedRow:
        """A pass that verifies eight positions beside one that decodes one, of the same request; below 1 by nature."""
        with BarePass(engine, 1, self.context, fed=8) as eight, BarePass(engine, 1, self.context) as one:
            target = round(1 / 1.15, 2) if self.dtype == "bf16" else None
            return self.row("1 position, ours 8", 1, eight, one, target)

    def profile(self, engine: Engine, batch: int, fed: int, bandwidth: float | None) -> dict[str, Any]:
        """A pass's time, the memory's limit, and the shares of its parts; `fed` positions of each request.

        Without a `bandwidth` there is no limit: `weight_bytes` counts the bytes of the dtype.
        """
        with BarePass(engine, batch, self.context, fed) as one:
            n_bytes = weight_bytes(engine) + kv_bytes(engine, batch * self.context)
            weights = engine.config.weights
            return {"of": "ours" if weights == "auto" else f"ours, {weights}", "batch": batch, "positions": fed,
                    "ms": self._middle(one, lambda: None),
                    "roofline_ms": None if bandwidth is None else round(1e3 * n_bytes / bandwidth, 2),
                    } | shares_of(one, self.passes)

    def profile_of_transformers(self, engine: Engine) -> dict[str, Any]:
        """The same of a decode pass of `transformers`, one request."""
        one = TransformersPass(transformers_model(self.model, engine.config.torch_dtype), 1, self.context)

        def and_back() -> None:
            one()
            one.rewind()

        return {"of": "transformers", "batch": 1, "positions": 1, "ms": self._middle(one, one.rewind),
                "roofline_ms": None} | shares_of(and_back, self.passes)

    def _middle(self, one: Pass, after: Callable[[], None]) -> float:
        """Milliseconds, the median; `after` is not timed."""
        times = []
        for _ in range(3 * self.passes + 1):
            started = _CLOCKS[self.clock]()
            one()
            times.append(1e3 * (_CLOCKS[self.clock]() - started))
            after()
        return round(statistics.median(times[1:]), 2)


def measure(speed: Speed, *, peers: bool) -> dict[str, Any]:
    """Every row of one dtype and number of threads, its distance from the memory's limit, and where its time goes."""
    torch.set_num_threads(speed.threads)
    rows: list[SpeedRow] = []
    with ExitStack() as stack:
        engine = stack.enter_context(speed.engine("auto"))
        if peers:
            try:
                rows += speed.beside_transformers(engine)
            except NotHereError as error:
                print(f"left out: {error}", file=sys.stderr)
        rows.append(speed.eight_positions(engine))
        rows += speed.beside_kind(engine, "plain", (1, 4, 8, 16))
        if speed.dtype == "bf16":
            rows += speed.beside_kind(engine, "int8", (1, 4, 16), target=1.3)
        bandwidth = bandwidth_by(speed.clock)
        profiles = [speed.profile(engine, batch, fed, bandwidth) for batch, fed in _PROFILED]
        if speed.dtype == "bf16":
            with speed.engine("int8") as rounded:
                profiles.append(speed.profile(rounded, 1, 1, None))
        if peers:
            with suppress(NotHereError):  # said above
                profiles.append(speed.profile_of_transformers(engine))
    return {"dtype": speed.dtype, "threads": speed.threads, "clock": speed.clock,
            "bandwidth_gb_s": round(bandwidth / 1e9, 2), "rows": [asdict(row) for row in rows],
            "profiles": profiles}


def bandwidth_by(clock: ClockName, n_bytes: int = 256 << 20) -> float:
    """Bytes a second that a matrix is read with when it is multiplied by a vector, the best of 16, by the same clock.

    `denominators.memory_bandwidth` measures on the wall: on a machine that others use the limit can lie above the pass.
    """
    matrix, vector = torch.ones(n_bytes // 4096, 1024), torch.ones(1024)
    times = []
    for _ in range(16):
        started = _CLOCKS[clock]()
        torch.mv(matrix, vector)
        times.append(_CLOCKS[clock]() - started)
    return n_bytes / min(times)


def table(data: dict[str, Any]) -> str:
    """Two Markdown tables of a file: the pairs, and where the time of a pass goes."""
    lines = ["| dtype | threads | clock | batch | beside | ours ms | other ms | other / ours | aimed at |",
             "| --- | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: |"]
    for part in data["parts"]:
        for row in part["rows"]:
            aim = "-" if row["target"] is None else f"{row['target']:.2f}"
            lines.append(f"| {row['dtype']} | {row['threads']} | {part['clock']} | {row['batch']} | {row['what']} | "
                         f"{row['ms']:.1f} | {row['other_ms']:.1f} | "
                         f"{interval(Interval(**row['ratio']))} | {aim} |")
    lines += ["", "| dtype | threads | pass of | batch | positions | pass ms | memory's limit ms | linear ms | linear "
              "| attention | gather | other |",
              "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for part in data["parts"]:
        for one in part["profiles"]:
            limit = "-" if one["roofline_ms"] is None else f"{one['roofline_ms']:.1f}"
            shown = " | ".join(f"{one[name]:.0%}" for name in ("linear", "attention", "gather", "other"))
            lines.append(f"| {part['dtype']} | {part['threads']} | {one['of']} | {one['batch']} | {one['positions']} | "
                         f"{one['ms']:.1f} | {limit} | {one['ms'] * one['linear']:.1f} | {shown} |")
    return "\n".join(lines)


def merged(path: Path, part: dict[str, Any]) -> dict[str, Any]:
    """The file at `path`, or a new one, with `part` in the place of what it had of this dtype and these threads."""
    empty = Ledger.begin("cpu", {})
    found: dict[str, Any] = {"parts": []}
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
    key = (part["dtype"], part["threads"])
    parts = [one for one in found["parts"] if (one["dtype"], one["threads"]) != key]
    return {"command": "python -m benchmarks.speed --json FILE", "machine": empty.machine, "packages": empty.packages,
            "parts": sorted([*parts, part], key=lambda one: (one["dtype"], one["threads"]))}


def main(arguments: list[str] | None = None) -> int:
    """Measure and print, or print a file's tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--context", type=int, default=128, help="tokens of each request")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--passes", type=int, default=3, help="timed passes a side of a pair; their median counts")
    parser.add_argument("--clock", choices=get_args(ClockName), default="wall",
                        help="cpu: the processor's time, for one thread on a machine that others use too")
    parser.add_argument("--no-peers", action="store_true", help="without transformers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write, or bring up to date, this file")
    parser.add_argument("--table", type=Path, metavar="FILE", help="measure nothing; print this file's tables")
    given = parser.parse_args(arguments)
    if given.table is not None:
        print(table(json.loads(given.table.read_text(encoding="utf-8"))))
        return 0
    assert given.dtype in get_args(DtypeName)
    logging.basicConfig(level=logging.WARNING)
    part = measure(Speed(cast("DtypeName", given.dtype), given.threads, given.context, given.model, given.pairs,
                         given.passes, given.clock), peers=not given.no_peers)
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(merged(given.json, part), indent=1) + "\n", encoding="utf-8")
    print(table({"parts": [part]}))
    return 0


def _line(row: SpeedRow) -> str:
    return (f"{row.dtype}, {row.threads} threads, batch {row.batch}, beside {row.what}: {row.ms:.1f} ms to "
            f"{row.other_ms:.1f} ms, {interval(row.ratio)}")


if __name__ == "__main__":
    sys.exit(main())
