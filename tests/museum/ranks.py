"""Ranks that are threads of this process, for the rows about what several ranks must agree on."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from stages.stage5_backend_jump.grammar_manager import Decision, GrammarManager
from tests.museum.bench import PATIENCE_S, hold


@dataclass
class FakeRanks:
    """A group of ranks that are threads of this process; `of` gives each its end of it."""

    size: int = 2
    decisions: dict[int, Decision] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.size, timeout=PATIENCE_S)

    def of(self, rank: int) -> FakeRank:
        """One rank's view."""
        return FakeRank(self, rank)


@dataclass
class FakeRank:
    """`RankGroup` of one of the fake ranks."""

    ranks: FakeRanks
    rank: int

    def from_each(self, value: Decision) -> Sequence[Decision]:
        """Everybody's, once everybody is there."""
        self.ranks.decisions[self.rank] = value
        self.ranks.barrier.wait()
        gathered = [self.ranks.decisions[rank] for rank in range(self.ranks.size)]
        self.ranks.barrier.wait()
        return gathered


@dataclass
class Told:
    """A group that asks nobody: what it says was decided before, or is what this rank sees."""

    decision: Decision | None = None

    def from_each(self, value: Decision) -> Sequence[Decision]:
        """One decision."""
        return [value if self.decision is None else self.decision]


def turn_of_each(managers: Sequence[GrammarManager]) -> list[dict[str, str]]:
    """Let all ranks poll once, at the same time; per rank, what it does with whom, in order."""
    settled: list[dict[str, str]] = [{} for _ in managers]

    def turn(rank: int) -> None:
        settled[rank] = {req.rid: admission.state.value for req, admission in managers[rank].poll()}

    threads = [threading.Thread(target=turn, args=(rank,), daemon=True) for rank in range(len(managers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE_S)
    hold(not any(thread.is_alive() for thread in threads), "a rank waits for another one for ever")
    return settled


def settled_alike(managers: Sequence[GrammarManager], wanted: dict[str, str]) -> None:
    """Let all ranks poll, turn by turn, until one settles something: all must settle `wanted` in that turn."""
    for _ in range(400):
        settled = turn_of_each(managers)
        if any(settled):
            hold(settled == [wanted] * len(managers), f"the ranks admit different requests: {settled}")
            return
        time.sleep(0.001)
    hold(False, f"{wanted} was never settled")
