"""Row 42: the start time is set on one of the two ways into the queue."""

from __future__ import annotations

from shared_runtime import engine as engine_module
from shared_runtime.constraint import Constraint
from shared_runtime.policy import COMPILING, Admission
from shared_runtime.request import Request
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.scheduler import Scheduler
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection


class StampedOnOneWay(Scheduler):
    """Specimen of `Scheduler`: who comes out of the compile queue is scheduled without its time."""

    _compiled: tuple[Request, ...] = ()

    def _ready(self) -> None:
        self._compiled = (*self._compiled, *self.queues.compiling.values())
        super()._ready()

    def _schedule(self) -> ScheduleBatch | None:
        batch = super()._schedule()
        for req in self._compiled:
            req.metrics.admitted = None
        return batch


class CompilesLater(CopiedFSMPolicy):
    """A policy whose requests compile for one turn, as in the later stages."""

    def admit(self, req: Request) -> Admission:
        """Compiling; `poll` has the answer."""
        self._later = [(req, super().admit(req))]
        return COMPILING

    def poll(self) -> list[tuple[Request, Admission]]:
        """What `admit` found out."""
        later, self._later = self._later, []
        return later


def every_request_has_a_queue_time(scheduler_class: type[Scheduler], bench: Bench) -> None:
    """One request that compiles and one that does not."""
    engine = bench.engine(1)
    policy = CompilesLater(bench.context())
    loop = scheduler_class(engine.config, engine.tokenizer.vocabulary, engine.parts.runner, engine.parts.memory, policy,
                           engine.parts.tracer, engine.parts.ranks)
    bound, free = request(Constraint.regex("[0-9]"), rid="bound"), request(rid="free")
    for req in (bound, free):
        loop.add(req)
    for _ in range(200):
        if loop.has_work:
            loop.step()
    for req in (free, bound):
        hold(req.metrics.queue_s is not None, f"request {req.rid} has no time in the queue")


def scenario(bench: Bench) -> None:
    """A request on stage 5, whose grammar compiles beside the loop."""
    result = bench.run(bench.engine(5), [Ask("x", Constraint.regex("[0-9]"))])[0]
    hold(result.metrics.queue_s is not None, "a request has no time in the queue")


EXHIBIT: Exhibit[type[Scheduler]] = Exhibit(
    42, StampedOnOneWay, {"runtime": Scheduler}, every_request_has_a_queue_time, "request bound has no time",
    Injection(engine_module, "Scheduler", StampedOnOneWay, scenario, "a request has no time in the queue"))
