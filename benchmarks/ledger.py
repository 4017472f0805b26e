"""What a run has checked and measured, as one JSON file; `benchmarks/ledger.schema.json` says what is in it."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.curve import Point

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = "jumpforward-ledger/1"
_PACKAGES = ("torch", "triton", "numpy", "tokenizers", "safetensors", "xgrammar", "llguidance", "outlines",
             "outlines-core", "interegular", "transformers", "flashinfer-python")

Outcome = Literal["ok", "failed", "skipped"]


class NotHereError(Exception):
    """A check or a measurement has nothing to work on here; its text says what is missing."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `seen` says what was found, what was wrong, or what is missing here."""

    name: str
    outcome: Outcome
    seen: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio of two things that ran in turn.

    Attributes:
        median: of the pairs. low, high: where the median lies, 19 times in 20 (of fewer than six pairs: the smallest
            and the largest). pairs: how many.
    """

    median: float
    low: float
    high: float
    pairs: int

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Interval:
        """From one ratio a pair; the bounds come from the order of the ratios and assume no distribution.

        Raises:
            ValueError: there is no pair.
        """
        ordered, n = sorted(ratios), len(ratios)
        below, outside = 0, 0.0  # how many of each end the interval leaves out, and how probable that error is
        while 2 * (outside + math.comb(n, below) / 2**n) <= 0.05:
            outside += math.comb(n, below) / 2**n
            below += 1
        skip = max(0, below - 1)
        return cls(round(statistics.median(ordered), 4), round(ordered[skip], 4), round(ordered[n - 1 - skip], 4), n)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of the table of times.

    Attributes:
        workload, stage, backend, mode, dtype, batch, graphs: what ran; stage 0 is a peer.
        counts: what does not depend on the machine.
        step_ms: p50, p90, p99 and p99.9 of the loop's turns. tpot_ms: time per token of one request.
        tokens_per_s: of the whole batch. denominators: of the same run: what `tpot_ms` is to be compared with.
        times: further times by name, each with its percentiles. ratios: against what ran in turn with this.
        quality: of the text. texts: the answers, where they are kept.
    """

    workload: str
    stage: int
    backend: str | None
    mode: str
    dtype: str
    batch: int
    graphs: bool
    counts: dict[str, int]
    step_ms: dict[str, float]
    tpot_ms: float
    tokens_per_s: float
    denominators: dict[str, float] = field(default_factory=dict)
    times: dict[str, dict[str, float]] = field(default_factory=dict)
    ratios: dict[str, Interval] = field(default_factory=dict)
    quality: dict[str, float] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """What ran, in one word: a ledger holds each once."""
        return "/".join([self.workload, str(self.stage), self.backend or "-", self.mode, str(self.batch)])


@dataclass(frozen=True, slots=True)
class EngineRow:
    """A mask engine alone, without a model: every text of a set of schemas, token by token.

    Attributes:
        engine: which. counts: schemas, how many of them it `ok`, `refused` or did `wrong`; tokens and masks.
        ttfm_ms: time to first mask, a schema each: compiling and one mask. tbm_us: time between masks, all together.
        refused, wrong: what it said, or got wrong, by schema.
    """

    engine: str
    counts: dict[str, int]
    ttfm_ms: dict[str, float]
    tbm_us: dict[str, float]
    refused: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What ran, in one word."""
        return f"masks/{self.engine}"


@dataclass(slots=True)
class Ledger:
    """Everything of one run; `unfinished` names what is still to be done."""

    command: list[str]
    commit: str
    machine: dict[str, str | int]
    packages: dict[str, str]
    settings: dict[str, str]
    checks: list[Check] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    engines: list[EngineRow] = field(default_factory=list)
    growth: list[Point] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    schema: str = SCHEMA

    @classmethod
    def begin(cls, device: str, settings: dict[str, str]) -> Ledger:
        """An empty ledger of this machine, this code and this command."""
        # Of a path from the root, only the name: the rest says where somebody works, and nothing of the run.
        words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv]
        first = ["jumpforward"] if words[0] == "__main__.py" else ["python"] * words[0].endswith(".py") + words[:1]
        command = [*first, *words[1:]]
        return cls(command=command, commit=_commit(), machine=_machine(device), packages=_packages(), settings=settings)

    @property
    def failed(self) -> list[str]:
        """Names of the checks that failed."""
        return [one.name for one in self.checks if one.outcome == "failed"]

    def check(self, name: str, body: Callable[[], str]) -> None:
        """Run a check. Whatever it raises is its failure, so that a run on a rare machine tells all it can."""
        started = time.perf_counter()
        outcome: Outcome = "failed"
        try:
            seen, outcome = body(), "ok"
        except NotHereError as error:
            seen, outcome = str(error), "skipped"
        except Exception as error:
            seen = f"{type(error).__name__}: {error}"
        seen = " ".join(seen.split())[:600]
        self.checks.append(Check(name, outcome, seen, round(time.perf_counter() - started, 2)))
        print(f"{outcome:7} {name}: {seen}", flush=True)

    def note(self, text: str) -> None:
        """What a reader of the file must know."""
        self.notes.append(text)
        print(f"note    {text}", flush=True)

    def measured(self, one: Measurement) -> None:
        """Keep a row."""
        self.measurements.append(one)
        what = f"{one.workload}, stage {one.stage} {one.backend or ''} {one.mode}, {one.dtype}, batch {one.batch}"
        print(f"        {what}: {one.tpot_ms:.2f} ms a token, {one.tokens_per_s:.0f} tokens/s", flush=True)

    @property
    def keys(self) -> set[str]:
        """What has been measured."""
        return {one.key for rows in (self.measurements, self.engines, self.growth) for one in rows}

    def write(self, path: Path) -> None:
        """Write the file; a reader sees the old one or the new one, never a half."""
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(path.name + ".part")
        half.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        half.replace(path)

    @classmethod
    def of(cls, data: dict[str, Any]) -> Ledger:
        """From the JSON of a file, which must be of the schema."""
        rows = [Measurement(**one | {"ratios": {name: Interval(**ratio) for name, ratio in one["ratios"].items()}})
                for one in data["measurements"]]
        return cls(**data | {"checks": [Check(**one) for one in data["checks"]], "measurements": rows,
                             "engines": [EngineRow(**one) for one in data["engines"]],
                             "growth": [Point(**one) for one in data.get("growth", [])]})


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99 and p99.9 of some times: the smallest value that so many do not pass; {} of none."""
    if not values:
        return {}
    ordered = sorted(values)
    return {name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4)
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))}


def _commit() -> str:
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return found.stdout.strip() if found.returncode == 0 else "unknown"


def _machine(device: str) -> dict[str, str | int]:
    machine: dict[str, str | int] = {"system": platform.system(), "processor": platform.machine(),
                                     "cores": os.cpu_count() or 0, "python": platform.python_version(),
                                     "device": "cpu"}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        machine |= {"device": properties.name, "devices": torch.cuda.device_count(),
                    "memory_bytes": properties.total_memory, "cuda": torch.version.cuda or "",
                    "capability": f"{properties.major}.{properties.minor}"}
    return machine


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | {"torch": torch.__version__}
