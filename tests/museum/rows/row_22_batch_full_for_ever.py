"""Row 22: "the batch is full" is remembered until a request ends, and a jump ends none."""

from __future__ import annotations

from shared_runtime import scheduler
from shared_runtime.batch_builder import BatchBuilder
from shared_runtime.config import EngineConfig
from shared_runtime.finisher import Finisher
from shared_runtime.queues import Queues
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import BatchRow, ScheduleBatch
from shared_runtime.tracer import NullTracer
from shared_runtime.waiting_queue import WaitingQueue
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy
from tests.museum.bench import Bench, hold, memory, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import ask


class FullUntilOneEnds(BatchBuilder):
    """Specimen of `BatchBuilder`: a latch saves the look at the queue while nothing can be admitted."""

    _is_full = False
    _ran: tuple[Request, ...] = ()

    def next_batch(self) -> ScheduleBatch | None:
        """The batch of this turn; the latch opens when a request has ended."""
        if any(req.finished for req in self._ran):
            self._is_full = False
        batch = super().next_batch()
        if batch is not None:
            self._ran = tuple(batch.reqs)
        return batch

    def _admit(self, req: Request, budget: int, rows: list[BatchRow]) -> BatchRow | None:
        if self._is_full:
            return None
        row = super()._admit(req, budget, rows)
        self._is_full = row is None
        return row


def who_waits_is_admitted_when_there_is_room(builder_class: type[BatchBuilder], bench: Bench) -> None:
    """Room for two, three wait; the two that run are taken out of their batch and wait again."""
    queues, kv = Queues(WaitingQueue("fcfs")), memory()
    builder = builder_class(EngineConfig(max_running_requests=2), kv, queues, CopiedFSMPolicy(bench.context()),
                            Finisher(bench.context().vocabulary), NullTracer())
    for rid in ("first", "second", "third"):
        queues.waiting.append(request(rid=rid, prompt_ids=[5, 6], sampling=SamplingParams(max_new_tokens=4)))
    batch = builder.next_batch()
    assert batch is not None
    assert len(batch.reqs) == 2
    for req in batch.reqs:  # after their first token both jump
        req.kv_len = 2
        kv.release(req)
        queues.waiting.append(req)
    hold(builder.next_batch() is not None, "3 requests wait, none runs, and none is admitted")


def scenario(bench: Bench) -> None:
    """Three requests with room for two, and both jump in the same step."""
    bench.run(bench.engine(2, max_running_requests=2), [ask("n: true, false")] * 3)


EXHIBIT: Exhibit[type[BatchBuilder]] = Exhibit(
    22, FullUntilOneEnds, {"runtime": BatchBuilder}, who_waits_is_admitted_when_there_is_room, "none is admitted",
    Injection(scheduler, "BatchBuilder", FullUntilOneEnds, scenario, "3 of 3 requests did not end"))
