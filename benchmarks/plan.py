"""What a run measures, in which order: the cells of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.modes import Mode, missing_for, modes_of
from benchmarks.workloads import Workload
from shared_runtime.conformance.target import Target, all_targets

PEERS = ("transformers", "xgrammar", "llguidance", "outlines")
"""`transformers.generate` free, and with each library's logits processor."""

ENGINES = ("stage1_fsm", "outlines", "xgrammar", "llguidance")
"""Mask engines alone."""

_QUICK = {(1, "plain"), (2, "jump"), (3, "jump"), (4, "jump"), (5, "plain"), (5, "draft"), (5, "force"),
          (5, "force+draft")}
_QUICK_LATER = {(1, "plain"), (5, "plain"), (5, "force+draft")}
"""In a quick run, of the workloads behind the first one."""

_BACKENDS_MEASURED_IN = {"plain", "draft", "force+draft"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A workload on a stage with one of its backends, in one mode."""

    workload: Workload
    target: Target
    mode: Mode
    batch: int

    @property
    def key(self) -> str:
        """As `Measurement.key`."""
        return f"{self.workload.name}/{self.target.spec.id}/{self.target.backend}/{self.mode.name}/{self.batch}"


@dataclass(frozen=True, slots=True)
class PeerCell:
    """A workload on somebody else's loop; `backend` None is without a constraint."""

    workload: Workload
    name: str
    batch: int

    @property
    def backend(self) -> str | None:
        """The library that masks."""
        return None if self.name == "transformers" else self.name

    @property
    def key(self) -> str:
        """As `Measurement.key`."""
        return f"{self.workload.name}/0/{self.backend or '-'}/transformers/{self.batch}"


@dataclass(frozen=True, slots=True)
class EngineCell:
    """A mask engine alone, over the schema slice."""

    engine: str

    @property
    def key(self) -> str:
        """As `EngineRow.key`."""
        return f"masks/{self.engine}"


AnyCell = Cell | PeerCell | EngineCell


def plan(workloads: Sequence[Workload], *, quick: bool, stages: Sequence[int] = (), peers: bool = True,
         engines: bool = True) -> list[AnyCell]:
    """The cells, those that others are compared with first.

    Args:
        workloads: which. quick: the small table, the first workload's rows above all. stages: only these; () is all.
        peers, engines: with other loops, and with the mask engines alone.
    """
    cells: list[AnyCell] = []
    for index, workload in enumerate(workloads):
        few = None if not quick else _QUICK_LATER if index else _QUICK
        for batch in workload.quick if quick else workload.batches:
            cells += _own(workload, batch, few, stages)
            if peers:
                cells += [PeerCell(workload, name, batch) for name in (PEERS[:2] if quick else PEERS)
                          if _has(name, workload)]
    return cells + ([EngineCell(name) for name in ENGINES] if engines else [])


def _own(workload: Workload, batch: int, few: set[tuple[int, str]] | None, stages: Sequence[int]) -> Iterator[Cell]:
    """The newest stage first: its plain rows are what all others are compared with. `few` modes, or None for all."""
    seen: set[int] = set()
    for target in sorted(all_targets(), key=lambda one: -one.spec.id):
        default = target.spec.id not in seen
        seen.add(target.spec.id)
        fits = all(target.supports(kind) for kind in workload.kinds) and (not stages or target.spec.id in stages)
        if not fits or missing_for(target) or (few is not None and not default):
            continue
        for mode in modes_of(target.spec):
            wanted = few is None or (target.spec.id, mode.name) in few
            if wanted and (default or mode.name in _BACKENDS_MEASURED_IN):
                yield Cell(workload, target, mode, batch)


def _has(peer: str, workload: Workload) -> bool:
    """Whether a peer can be asked for this: the others' words for a structural tag are not tried."""
    return "structural_tag" not in workload.kinds or peer == "transformers"
