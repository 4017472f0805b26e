"""Which layers of the engine a change touched: a feature that crosses all of them is dear to keep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from history.clone import Clone, FileChange
from history.timeline import TimelineRow

_SRT = "python/sglang/srt/"
_LAYERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("constrained", (_SRT + "constrained/", "python/sglang/kernels/ops/grammar")),
    ("managers", (_SRT + "managers/",)),
    ("sampling", (_SRT + "sampling/", _SRT + "layers/sampler")),
    ("model", (_SRT + "model_executor/", _SRT + "layers/", _SRT + "models/")),
    ("speculative", (_SRT + "speculative/",)),
    ("disaggregation", (_SRT + "disaggregation/",)),
    ("API", (_SRT + "entrypoints/", _SRT + "openai_api", _SRT + "server", "python/sglang/lang/", _SRT + "utils/")),
    ("tests", ("test/", "benchmark/", "scripts/", "python/sglang/test/")),
    ("docs", ("docs", "README", "examples/")),
)
LAYERS = (*(name for name, _ in _LAYERS), "other")
"""Names of the layers, from the grammar outwards; `other` is what no prefix covers."""


@dataclass(frozen=True, slots=True)
class Touched:
    """The files of one commit by layer; only layers that it touched are named."""

    row: TimelineRow
    layers: dict[str, int]


def layer_of(path: str) -> str:
    """The layer a file of SGLang belongs to."""
    return next((name for name, prefixes in _LAYERS if path.startswith(prefixes)), "other")


def by_layer(changes: Iterable[FileChange]) -> dict[str, int]:
    """Files changed per layer, in the order of `LAYERS`."""
    found = [layer_of(change.path) for change in changes]
    return {name: found.count(name) for name in LAYERS if name in found}


def touched(clone: Clone, rows: Sequence[TimelineRow]) -> list[Touched]:
    """What each commit touched, in the given order; those that the clone lacks are left out."""
    return [Touched(row, by_layer(clone.changes(row.hash))) for row in rows if clone.has(row.hash)]
