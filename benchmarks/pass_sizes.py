"""How large the passes of a run were, and what such passes take by themselves."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.bare_pass import BarePass
from benchmarks.denominators import timed
from benchmarks.serving import Run
from shared_runtime.engine import Engine

_CONTEXT = 160
"""Tokens in memory after a pass that reads fewer."""

_REPEATS = 3


@dataclass(frozen=True, slots=True)
class PassSize:
    """A pass of one request.

    Attributes:
        fed: tokens that it reads. scored: of how many of these, the last ones, it computes logits. prompt: whether it
            is the request's first.
    """

    fed: int
    scored: int
    prompt: bool = False


def pass_sizes(run: Run) -> list[PassSize]:
    """Every pass of a run of one request at a time, in order."""
    known: set[str] = set()
    found = []
    for row in (row for record in run.records for row in record.requests):
        found.append(PassSize(len(row.fed), 1 + len(row.draft), prompt=row.rid not in known))
        known.add(row.rid)
    return found


def bare_seconds(engine: Engine, passes: Sequence[PassSize]) -> float:
    """Of all passes together; each size is run a few times, and its median counts for all of that size."""
    total = 0.0
    for size, count in Counter(passes).items():
        with BarePass(engine, 1, max(size.fed, _CONTEXT), size.fed, size.scored) as one:
            total += count * statistics.median(timed(one, engine.config.torch_device) for _ in range(_REPEATS))
    return total
