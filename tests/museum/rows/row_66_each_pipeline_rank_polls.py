"""Row 66: the ranks of a pipeline each poll their own compiles, though only the first one decides what runs."""

from __future__ import annotations

from shared_runtime.admission import Admission
from shared_runtime.constraint import Constraint
from shared_runtime.request import Request
from stages.stage5_backend_jump.grammar_manager import GrammarManager
from tests.museum.bench import Bench, request
from tests.museum.exhibit import Exhibit
from tests.museum.grammars import LIMITS, Clock, Compile, Gate, Scripted, compiles
from tests.museum.ranks import FakeRanks, Told, settled_alike


class AgreesWithinItsStage(GrammarManager):
    """Specimen of `GrammarManager`: those who agree are the ranks of one pipeline stage."""

    def poll(self) -> list[tuple[Request, Admission]]:
        """The ranks before and behind it are not asked."""
        self._group = Told()
        return super().poll()


def one_decision_for_the_whole_pipeline(manager_class: type[GrammarManager], bench: Bench) -> None:
    """The first rank's compile comes back, the second one's never does: past the limit both refuse the request."""
    ranks, gate, clock = FakeRanks(), Gate(), Clock()
    scripts: tuple[Compile, ...] = (compiles, gate)
    managers = [manager_class(Scripted(bench, compile_it), LIMITS, ranks.of(rank), clock=clock)
                for rank, compile_it in enumerate(scripts)]
    try:
        for manager in managers:
            manager.admit(request(Constraint.regex("a"), rid="a"))
        managers[0]._pending[Constraint.regex("a")].job.future.result(timeout=4)
        clock.ahead = 60.0
        settled_alike(managers, {"a": "rejected"})
    finally:
        gate.opened.set()


EXHIBIT: Exhibit[type[GrammarManager]] = Exhibit(
    66, AgreesWithinItsStage, {"stage5": GrammarManager}, one_decision_for_the_whole_pipeline, "different requests")
