"""What a run has checked and measured, as one JSON file; `benchmarks/ledger.schema.json` says what is in it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import torch

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = "jumpforward-ledger/1"
_PACKAGES = ("torch", "triton", "numpy", "tokenizers", "safetensors", "xgrammar", "llguidance", "outlines",
             "outlines-core", "interegular", "transformers", "flashinfer-python")


class NotHereError(Exception):
    """A check or a measurement has nothing to work on here; its text says what is missing."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `seen` says what was found, what was wrong, or what is missing here."""

    name: str
    outcome: Literal["ok", "failed", "skipped"]
    seen: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of the table of times.

    Attributes:
        workload, stage, backend, mode, dtype, batch, graphs: what ran; stage 0 is a peer.
        counts: what does not depend on the machine.
        step_ms: p50, p90, p99 and p99.9 of the loop's turns. tpot_ms: time per token of one request.
        tokens_per_s: of the whole batch. denominators: of the same run: what `tpot_ms` is to be compared with.
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


@dataclass(slots=True)
class Ledger:
    """Everything of one run."""

    command: list[str]
    commit: str
    machine: dict[str, str | int]
    packages: dict[str, str]
    settings: dict[str, str]
    checks: list[Check] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    schema: str = SCHEMA

    @classmethod
    def begin(cls, device: str, settings: dict[str, str]) -> Ledger:
        """An empty ledger of this machine, this code and this command."""
        return cls(command=["python", *sys.argv], commit=_commit(), machine=_machine(device), packages=_packages(),
                   settings=settings)

    @property
    def failed(self) -> list[str]:
        """Names of the checks that failed."""
        return [one.name for one in self.checks if one.outcome == "failed"]

    def check(self, name: str, body: Callable[[], str]) -> None:
        """Run a check. Whatever it raises is its failure, so that a run on a rare machine tells all it can."""
        started = time.perf_counter()
        outcome: Literal["ok", "failed", "skipped"] = "failed"
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

    def write(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99 and p99.9 of some times: the smallest value that so many do not pass."""
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
