"""A run of the bench: cell after cell into the ledger file, so that it can be stopped at any time and gone on with."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.curve import Point
from benchmarks.denominators import memory_bandwidth
from benchmarks.growth import Growth, GrowthCell
from benchmarks.ledger import EngineRow, Ledger, Measurement, NotHereError
from benchmarks.mask_engines import engine_named, measure_engine
from benchmarks.measuring import Lab, with_bounds
from benchmarks.peers import Peers
from benchmarks.plan import AnyCell, EngineCell, PeerCell
from benchmarks.report import LEFT_OUT
from benchmarks.results import read_ledger
from benchmarks.workloads import schema_slice
from shared_runtime.config import EngineConfig, usable_cores
from shared_runtime.errors import ConfigError, JumpforwardError
from shared_runtime.model.locate import locate_model
from shared_runtime.tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Session:
    """What a run is: its settings, where it writes, and how long it may take.

    Attributes:
        config: of the engines. out: the ledger's file. pairs: timed pairs a cell. seconds: after so many no cell is
            begun but the first; None for no limit. fresh: start anew where there is a ledger. note: for whoever reads
            the ledger. bandwidth_bytes: read to measure it.
    """

    config: EngineConfig
    out: Path
    pairs: int
    quick: bool
    seconds: float | None = None
    fresh: bool = False
    note: str | None = None
    bandwidth_bytes: int = 256 << 20
    progress: Progress = lambda _what, _done, _total: None
    _lab: Lab | None = field(default=None, init=False)
    _peers: Peers | None = field(default=None, init=False)
    _growth: Growth | None = field(default=None, init=False)

    def run(self, cells: Sequence[AnyCell]) -> Ledger:
        """Measure what the ledger does not have yet; it is written after every cell.

        Raises:
            ConfigError: the file is of another run.
        """
        until = None if self.seconds is None else time.monotonic() + self.seconds
        ledger = self._ledger()
        todo = [cell for cell in cells if cell.key not in ledger.keys | _left_out(ledger)]
        ledger.unfinished = [cell.key for cell in todo]
        try:
            for index, cell in enumerate(todo):
                if index and until is not None and time.monotonic() > until:
                    break
                self.progress(cell.key, index, len(todo))
                self._one(ledger, cell)
                ledger.unfinished = [one.key for one in todo[index + 1:]]
                ledger.write(self.out)
        finally:
            if self._peers is not None:
                self._peers.close()
        ledger.write(self.out)
        return ledger

    def _one(self, ledger: Ledger, cell: AnyCell) -> None:
        try:
            row = self._measure(ledger, cell)
        except (JumpforwardError, NotHereError, ImportError) as error:
            ledger.notes.append(f"{LEFT_OUT}{cell.key}: {' '.join(str(error).split())[:300]}")
            return
        if isinstance(row, EngineRow):
            ledger.engines.append(row)
        elif isinstance(row, Point):
            ledger.growth.append(row)
        else:
            ledger.measurements = with_bounds([*ledger.measurements, row])

    def _measure(self, ledger: Ledger, cell: AnyCell) -> Measurement | EngineRow | Point:
        if isinstance(cell, EngineCell):
            tokenizer = Tokenizer.from_folder(locate_model(self.config.model, self.progress))
            return measure_engine(cell.engine, engine_named(cell.engine, tokenizer, self.config.limits), tokenizer,
                                  schema_slice(), self.progress)
        if isinstance(cell, GrowthCell):
            if self._growth is None:
                self._set_threads()
                self._growth = Growth(self.config)
            return self._growth.measure(cell)
        if self._lab is None:
            self._lab = self._new_lab(ledger)
        if isinstance(cell, PeerCell):
            if self._peers is None:
                self._peers = Peers(self._lab)
            return self._peers.measure(cell)
        return self._lab.measure(cell)

    def _set_threads(self) -> None:
        if self.config.torch_device.type == "cpu":
            torch.set_num_threads(self.config.thread_count)

    def _new_lab(self, ledger: Ledger) -> Lab:
        self._set_threads()
        bandwidth = memory_bandwidth(self.config.torch_device, self.bandwidth_bytes)
        ledger.notes.append(f"memory bandwidth, measured by reading a matrix: {bandwidth / 1e9:.1f} GB/s")
        lab = Lab(self.config, bandwidth, self.pairs, progress=self.progress)
        for one in ledger.measurements:  # what a run that went before has found out
            if one.stage and one.mode == "plain" and one.batch == 1:
                lab.plain.setdefault(one.workload, one.texts)
        return lab

    def _ledger(self) -> Ledger:
        settings = {"model": self.config.model, "load_format": self.config.load_format, "dtype": self.config.dtype,
                    "device": self.config.torch_device.type, "threads": str(self.config.thread_count),
                    "exact": str(self.config.exact), "pairs": str(self.pairs), "quick": str(self.quick)}
        ledger = Ledger.begin(self.config.torch_device.type, settings)
        load, cores = os.getloadavg()[0], usable_cores()
        said = f"load when it began: {load:.1f} on {cores} cores"
        if load > 0.5 * cores:
            said += "; the machine was busy: only counts and ratios of pairs say something, times do not"
        if self.out.exists() and not self.fresh:
            before = read_ledger(self.out)
            for name in ("commit", "settings", "machine", "packages"):
                was, now = getattr(before, name), getattr(ledger, name)
                if was != now:
                    raise ConfigError(f"the ledger there is of another {name}: {_difference(was, now)}",
                                      where=str(self.out), fix="use another --out, or begin anew with --fresh")
            ledger = before
        ledger.notes += [one for one in (said, self.note) if one is not None and one not in ledger.notes]
        return ledger


def _left_out(ledger: Ledger) -> set[str]:
    """Cells that this run has tried and could not measure."""
    return {note.split(": ")[1] for note in ledger.notes if note.startswith(LEFT_OUT)}


def _difference(was: object, now: object) -> str:
    return f"{json.dumps(was, sort_keys=True)} there, {json.dumps(now, sort_keys=True)} here"[:400]
