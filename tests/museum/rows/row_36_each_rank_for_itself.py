"""Row 36: each rank asks its own compiles what is ready, and they are not equally fast."""

from __future__ import annotations

from shared_runtime.admission import Admission
from shared_runtime.constraint import Constraint
from shared_runtime.request import Request
from stages.stage5_backend_jump import decoder
from stages.stage5_backend_jump.grammar_manager import GrammarManager
from tests.museum.bench import Bench, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import LIMITS, Gate, Scripted, compiles
from tests.museum.ranks import FakeRanks, Told, settled_alike


class PollsItsOwn(GrammarManager):
    """Specimen of `GrammarManager`: what is done here is admitted here."""

    def poll(self) -> list[tuple[Request, Admission]]:
        """Without a word to the other ranks."""
        self._group = Told()
        return super().poll()


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
        settled_alike(managers, {"fast": "ready"})
        slow.opened.set()
        settled_alike(managers, {"slow": "ready"})
    finally:
        slow.opened.set()


def scenario(bench: Bench) -> None:
    """The same with the manager that stage 5's policy makes."""
    policy = decoder.GrammarManagerPolicy(bench.context())
    all_ranks_admit_the_same(type(policy.manager), bench)


EXHIBIT: Exhibit[type[GrammarManager]] = Exhibit(
    36, PollsItsOwn, {"stage5": GrammarManager}, all_ranks_admit_the_same, "different requests",
    Injection(decoder, "GrammarManager", PollsItsOwn, scenario, "different requests"))
