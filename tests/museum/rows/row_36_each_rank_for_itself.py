"""Row 36: each rank asks its own compiles what is ready, and they are not equally fast."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from shared_runtime.constraint import Constraint
from shared_runtime.policy import Admission
from shared_runtime.request import Request
from stages.stage5_backend_jump import decoder
from stages.stage5_backend_jump.grammar_manager import Decision, GrammarManager
from tests.museum.bench import PATIENCE_S, Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import LIMITS, Gate, Scripted, compiles


class PollsItsOwn(GrammarManager):
    """Specimen of `GrammarManager`: what is done here is admitted here."""

    def poll(self) -> list[tuple[Request, Admission]]:
        """Without a word to the other ranks."""
        self._group = Alone()
        return super().poll()


class Alone:
    """A group that asks nobody."""

    def from_each(self, value: Decision) -> Sequence[Decision]:
        """What this rank sees."""
        return [value]


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


def all_ranks_admit_the_same(manager_class: type[GrammarManager], bench: Bench) -> None:
    """Two ranks, two grammars; on the second rank one of them takes longer."""
    ranks, slow = FakeRanks(), Gate()

    def of_rank_1(constraint: Constraint) -> None:
        if constraint.source == "slow":
            slow(constraint)

    managers = [manager_class(Scripted(bench, compile_it), LIMITS, ranks.of(rank))
                for rank, compile_it in enumerate((compiles, of_rank_1))]
    for manager in managers:
        for source in ("slow", "fast"):
            manager.admit(request(Constraint.regex(source), rid=source))
    try:
        _admitted_alike(managers, ["fast"])
        slow.opened.set()
        _admitted_alike(managers, ["slow"])
    finally:
        slow.opened.set()


def _admitted_alike(managers: Sequence[GrammarManager], wanted: list[str]) -> None:
    """Let all ranks poll, turn by turn, until one admits something: all must admit `wanted` in that turn."""
    for _ in range(400):
        admitted: list[list[str]] = [[] for _ in managers]

        def turn(rank: int, into: list[list[str]] = admitted) -> None:
            into[rank] = [req.rid for req, _ in managers[rank].poll()]

        threads = [threading.Thread(target=turn, args=(rank,), daemon=True) for rank in range(len(managers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE_S)
        hold(not any(thread.is_alive() for thread in threads), "a rank waits for another one for ever")
        if any(admitted):
            hold(admitted == [wanted] * len(managers), f"the ranks admit different requests: {admitted}")
            return
        time.sleep(0.001)
    hold(False, f"{wanted} was never admitted")


def scenario(bench: Bench) -> None:
    """The same with the manager that stage 5's policy makes."""
    policy = decoder.GrammarManagerPolicy(bench.context())
    all_ranks_admit_the_same(type(policy.manager), bench)


EXHIBIT: Exhibit[type[GrammarManager]] = Exhibit(
    36, PollsItsOwn, {"stage5": GrammarManager}, all_ranks_admit_the_same, "different requests",
    Injection(decoder, "GrammarManager", PollsItsOwn, scenario, "different requests"))
