"""Row 43: whether a grammar is in the cache is asked of the thread that compiles it, and each rank has its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from shared_runtime.admission import READY, Admission
from shared_runtime.constrain.compiling.compile_pool import CompileJob, CompilePool
from shared_runtime.constraint import Constraint
from shared_runtime.request import Request
from stages.stage5_backend_jump import decoder
from stages.stage5_backend_jump.base_grammar_backend import Compiled
from stages.stage5_backend_jump.grammar_manager import GrammarManager
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import LIMITS, Scripted, compiles
from tests.museum.ranks import FakeRanks, turn_of_each


class HitWhenTheThreadIsDone(GrammarManager):
    """Specimen of `GrammarManager`: a grammar counts as cached as soon as this rank's thread has made it."""

    def admit(self, req: Request) -> Admission:
        """A request whose grammar is done here does not wait for the other ranks."""
        pending = self._pending.get(req.constraint) if req.constraint is not None else None
        if pending is None or not pending.job.future.done():
            return super().admit(req)
        req.grammar = pending.job.future.result().grammar.copy()
        return READY


class AtOnce(CompilePool[Compiled]):
    """A pool whose compiles are done when they are handed in."""

    def submit(self, build: Callable[[], Compiled], key: Hashable = None) -> CompileJob[Compiled]:
        """Compile on the caller's thread."""
        job = CompileJob(build)
        job.future.set_result(build())
        return job


class NotYet(CompilePool[Compiled]):
    """A pool whose compiles are done when a test says so."""

    def __init__(self) -> None:
        super().__init__(1)
        self.jobs: list[CompileJob[Compiled]] = []

    def submit(self, build: Callable[[], Compiled], key: Hashable = None) -> CompileJob[Compiled]:
        """Keep it."""
        self.jobs.append(CompileJob(build))
        return self.jobs[-1]

    def finish(self) -> None:
        """Compile all."""
        for job in self.jobs:
            job.future.set_result(job.build())


def all_ranks_hit_or_none(manager_class: type[GrammarManager], bench: Bench) -> None:
    """One rank has compiled a grammar, the other one has not; a second request wants the same."""
    ranks, late = FakeRanks(), NotYet()
    managers = [manager_class(Scripted(bench, compiles), LIMITS, ranks.of(rank), pool=pool)
                for rank, pool in enumerate((AtOnce(1), late))]
    for rid in ("first", "second"):
        states = {manager.admit(request(Constraint.regex("a"), rid=rid)).state for manager in managers}
        hold(len(states) == 1, f"the {rid} request runs on one rank and waits on another")
    hold(turn_of_each(managers) == [{}, {}], "a rank settles what another one has not compiled")
    late.finish()
    hold(turn_of_each(managers) == [{"first": "ready", "second": "ready"}] * 2, "a request is settled on one rank only")
    hit = {manager.admit(request(Constraint.regex("a"), rid="third")).state for manager in managers}
    hold(hit == {READY.state}, "what all ranks have compiled is no hit on all of them")


def scenario(bench: Bench) -> None:
    """The same with the manager that stage 5's policy makes."""
    all_ranks_hit_or_none(type(decoder.GrammarManagerPolicy(bench.context()).manager), bench)


EXHIBIT: Exhibit[type[GrammarManager]] = Exhibit(
    43, HitWhenTheThreadIsDone, {"stage5": GrammarManager}, all_ranks_hit_or_none, "runs on one rank and waits",
    Injection(decoder, "GrammarManager", HitWhenTheThreadIsDone, scenario, "runs on one rank and waits"))
