"""What a run measures, in which order: the cells of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.growth import GrowthCell, growth_plan
from benchmarks.modes import Mode, missing_for, modes_of
from benchmarks.workloads import Workload, all_workloads
from shared_runtime.conformance.target import Target, all_targets
from shared_runtime.errors import ConfigError

ENGINES = ("stage1_fsm", "outlines", "xgrammar", "llguidance")
"""Mask engines alone."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody else's loop.

    Attributes:
        loop: whose. backend: what masks in it; None without a constraint. beside: stage 5's backend that runs in turn
            with it; None for the default. own_environment: it runs in another process, with its own packages.
    """

    loop: str
    backend: str | None = None
    beside: str | None = None
    own_environment: bool = False

    @property
    def free(self) -> bool:
        """Whether it answers without a constraint."""
        return self.backend is None


PEERS = (
    Peer("transformers"), *(Peer("transformers", name, name) for name in ("xgrammar", "llguidance", "outlines")),
    Peer("outlines", "outlines", "outlines"),
    Peer("guidance", "llguidance", "llguidance", own_environment=True),
    Peer("llama.cpp", own_environment=True), Peer("llama.cpp", "gbnf", own_environment=True),
)
"""`transformers.generate` free, and with each library's logits processor; Outlines from end to end; and two that need
packages of their own, over the same GGUF."""

_QUICK = {(1, "plain"), (2, "jump"), (3, "jump"), (4, "jump"), (5, "plain"), (5, "draft"), (5, "force"),
          (5, "force+draft")}
_QUICK_LATER = {(5, "plain"), (5, "force+draft")}
"""In a quick run, of the workloads behind the first one."""

_NOTHING_FORCED = "light"
"""There a quick run has no rows that jump."""

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
    """A workload on somebody else's loop."""

    workload: Workload
    peer: Peer
    batch: int

    @property
    def key(self) -> str:
        """As `Measurement.key`."""
        return f"{self.workload.name}/0/{self.peer.backend or '-'}/{self.peer.loop}/{self.batch}"


@dataclass(frozen=True, slots=True)
class EngineCell:
    """A mask engine alone, over the schema slice."""

    engine: str

    @property
    def key(self) -> str:
        """As `EngineRow.key`."""
        return f"masks/{self.engine}"


AnyCell = Cell | PeerCell | EngineCell | GrowthCell


def plan(workloads: Sequence[Workload], *, quick: bool, stages: Sequence[int] = (), peers: bool = True,
         engines: bool = True) -> list[AnyCell]:
    """The cells, those that others are compared with first.

    Args:
        workloads: which. quick: the small table, the first workload's rows above all. stages: only these; () is all.
        peers, engines: with other loops, and with the mask engines alone.
    """
    cells: list[AnyCell] = []
    alone: list[AnyCell] = [EngineCell(name) for name in ENGINES] if engines else []
    for index, workload in enumerate(workloads):
        few = None if not quick else _QUICK_LATER if index else _QUICK
        if few is not None and workload.name == _NOTHING_FORCED:
            few = few & {(5, "plain")}
        for batch in workload.quick if quick else workload.batches:
            cells += _own(workload, batch, few, stages)
            if peers and not (quick and index):
                cells += [PeerCell(workload, peer, batch) for peer in (PEERS[:2] if quick else PEERS)
                          if _has(peer, batch)]
        if quick and not index:
            cells, alone = cells + alone, []
    return cells + alone


def cells_named(keys: Sequence[str]) -> list[AnyCell]:
    """The cells of some rows, by the `key` that a report gives for each; any batch size, measured before or not.

    Raises:
        ConfigError: no row has this key.
    """
    found: list[AnyCell] = []
    for key in keys:
        name, _, batch = key.split("/", 1)[0], *key.rpartition("/")[1:]
        sizes = (int(batch),) if batch.isascii() and batch.isdigit() and int(batch) else ()
        workloads = [replace(one, batches=sizes) for one in all_workloads() if one.name == name]
        known: list[AnyCell] = [*plan(workloads, quick=False), *growth_plan()]
        cell = next((one for one in known if one.key == key), None)
        if cell is None:
            raise ConfigError(f"there is no row {key!r}", where="--row",
                              fix="take it from `jumpforward bench report`, such as ship_card/5/xgrammar/draft/1")
        found.append(cell)
    return found


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


def _has(peer: Peer, batch: int) -> bool:
    """Whether a peer can be asked for so many at a time: those with packages of their own take one request.

    A constraint that it has no words for is its row's reason to be left out, so that a report says so.
    """
    return batch == 1 or not peer.own_environment
