"""Row 56: the ranks exchange how many grammars are ready, and look up in their own list whose time is over."""

from __future__ import annotations

from shared_runtime.admission import Admission
from shared_runtime.constraint import Constraint
from shared_runtime.request import Request
from stages.stage5_backend_jump import decoder
from stages.stage5_backend_jump.grammar_manager import Decision, GrammarManager
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import LIMITS, Clock, Gate, Scripted
from tests.museum.ranks import FakeRanks, Told, turn_of_each


class ExchangesCounts(GrammarManager):
    """Specimen of `GrammarManager`: the first n are ready, n being the lowest count; the one behind them has failed."""

    def poll(self) -> list[tuple[Request, Admission]]:
        """Numbers from each rank, names from the own list."""
        if not self._pending:
            return []
        mine, group, keys = self._local_decision(), self._group, list(self._pending)
        gathered = group.from_each(mine)
        ready = keys[:min(len(seen.ready) for seen in gathered)]
        errors = [error for seen in gathered for error in seen.failed.values()]
        slot = len(mine.ready)
        self._group = Told(Decision(frozenset(ready), {keys[slot]: errors[0]} if errors and slot < len(keys) else {}))
        settled = super().poll()
        self._group = group
        return settled


def all_ranks_end_the_same(manager_class: type[GrammarManager], bench: Bench) -> None:
    """Three grammars: one rank has compiled the first, the other the first two; then the time is over."""
    ranks, gate, clock = FakeRanks(), Gate(), Clock()

    def compile_on(done: tuple[str, ...]) -> Scripted:
        return Scripted(bench, lambda constraint: None if constraint.source in done else gate(constraint))

    managers = [manager_class(compile_on(done), LIMITS, ranks.of(rank), clock=clock)
                for rank, done in enumerate((("a",), ("a", "b")))]
    try:
        for manager in managers:
            for source in "abc":
                manager.admit(request(Constraint.regex(source), rid=source))
        for manager, done in zip(managers, (1, 2), strict=True):
            _wait_for(manager, done)
        clock.ahead = 60.0
        first, second = turn_of_each(managers)
    finally:
        gate.opened.set()
    hold(first == second, f"the ranks end different requests: {first} and {second}")
    hold(first == {"a": "ready", "b": "rejected", "c": "rejected"}, f"the ranks agree on what is wrong: {first}")


def _wait_for(manager: GrammarManager, done: int) -> None:
    """Until so many compiles have come back."""
    for pending in list(manager._pending.values())[:done]:
        pending.job.future.result(timeout=4)


def scenario(bench: Bench) -> None:
    """The same with the manager that stage 5's policy makes."""
    all_ranks_end_the_same(type(decoder.GrammarManagerPolicy(bench.context()).manager), bench)


EXHIBIT: Exhibit[type[GrammarManager]] = Exhibit(
    56, ExchangesCounts, {"stage5": GrammarManager}, all_ranks_end_the_same, "end different requests",
    Injection(decoder, "GrammarManager", ExchangesCounts, scenario, "end different requests"))
