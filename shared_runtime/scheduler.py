"""The loop. One call of `step` is one turn; read it as a sentence.

The steps have numbers, here and in `policy.py`: 1 intake, 2 ready, 3 requeue, 4 schedule, 5 forward, 6 constrain,
7 sample, 8 accept, 9 finish. Steps 1, 3, 6 and 8 ask the stage's policy; everything else is the same for all five.
`execution/overlap_loop.py` has the same steps in another order, so that the CPU works while the model does.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from shared_runtime.batch_builder import BatchBuilder
from shared_runtime.config import EngineConfig
from shared_runtime.errors import EngineStateError, RequestError
from shared_runtime.execution.rank_group import RankGroup
from shared_runtime.finisher import Finisher
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.kv_memory import KVMemory
from shared_runtime.model_runner import ModelRunner
from shared_runtime.policy import Admission, AdmitState, Requeue, StagePolicy, rejected
from shared_runtime.queues import Queues
from shared_runtime.request import FinishReason, Request
from shared_runtime.result_processor import ResultProcessor
from shared_runtime.schedule_batch import BatchRow, ScheduleBatch
from shared_runtime.token_chooser import Support, TokenChooser
from shared_runtime.trace import StepRecord
from shared_runtime.tracer import Tracer
from shared_runtime.turn_recovery import TurnRecovery
from shared_runtime.verification import Run
from shared_runtime.vocabulary import Vocabulary
from shared_runtime.waiting_queue import WaitingQueue

_COMPILE_NAP_S = 0.0005


class Scheduler(TurnRecovery):
    """Runs requests to their end, a turn at a time. Not thread-safe: one thread calls everything here.

    Attributes:
        queues: where every live request is. ended: those that have ended, in that order; whoever reads them takes
            them out.
    """

    def __init__(self, config: EngineConfig, vocabulary: Vocabulary, runner: ModelRunner, memory: KVMemory,
                 policy: StagePolicy, tracer: Tracer, ranks: RankGroup) -> None:
        self.memory = memory
        self.queues = Queues(WaitingQueue(config.schedule_policy))
        self._device = config.torch_device
        self._vocabulary = vocabulary
        self._runner = runner
        self._policy = policy
        self._tracer = tracer
        self._chooser = TokenChooser(config, vocabulary, policy, tracer, ranks)
        self._finisher = Finisher(vocabulary)
        self._builder = BatchBuilder(config, memory, self.queues, policy, self._finisher, tracer)
        self._results = ResultProcessor(policy, self._finisher, self._chooser, tracer)
        self._arrived: list[Request] = []
        self._aborted: list[Request] = []
        self._live: dict[int, Request] = {}
        self._at_hand = []
        self._polling = False
        self.ended: deque[Request] = deque()

    def add(self, req: Request) -> None:
        """Hand in a request; the next turn takes it up."""
        self._arrived.append(req)
        self._live[id(req)] = req

    def abort(self, req: Request) -> None:
        """End a request at the start of the next turn, wherever it is. Aborting twice is aborting once."""
        self._aborted.append(req)

    @property
    def has_work(self) -> bool:
        """True while a turn has something to do."""
        return bool(self._arrived or self._aborted or not self.queues.empty)

    @property
    def in_flight(self) -> list[Tensor]:
        """The slots that passes on their way are writing to: none between turns of this loop."""
        return []

    def close(self) -> None:
        """No more turns will come."""

    def step(self) -> StepRecord | None:
        """One turn of the loop; returns its record when there is a trace."""
        with torch.inference_mode():  # here and not at import: the mode belongs to the thread that runs the turn
            try:
                return self._turn()
            except BaseException as error:
                self._give_up(error)
                raise

    def _turn(self) -> StepRecord | None:
        self._tracer.begin()
        self._intake()
        self._ready()
        self._requeue()
        batch = self._schedule()
        if batch is not None:
            logits = self._forward(batch)
            runs: list[Run] = []
            if batch.sampled:
                support = self._constrain(logits, batch)
                runs = self._sample(logits, batch, support)
                accepted = self._results.accept(batch, runs)
                self._results.emit(logits, support, runs, accepted)
            self._book(batch, runs)
            self._retire(batch)
        self._at_hand = []
        return self._record()

    # 1
    def _intake(self) -> None:
        self.carry_out_aborts()
        while self._arrived:
            req = self._arrived.pop(0)
            self._admitted(req, self._admit(req))
        self._tracer.phase("intake")

    def carry_out_aborts(self) -> None:
        """End what is to be aborted, now: also what has just arrived, which is then never compiled."""
        while self._aborted:
            req = self._aborted.pop(0)
            if req in self._arrived:
                self._arrived.remove(req)
            if not req.finished:
                self._policy.cancel(req.rid)
                self._end(req, FinishReason("abort"))

    def _admit(self, req: Request) -> Admission:
        if not req.has_grammar:
            return Admission(AdmitState.READY)
        try:
            admission = self._policy.admit(req)
        except Exception as error:  # a defect of the stage: it must not take the requests that came with this one
            admission = rejected(EngineStateError(f"the stage failed: {type(error).__name__}: {error}",
                                                  where=f"request {req.rid}"))
        if admission.state is not AdmitState.COMPILING:
            req.metrics.compile_s = time.perf_counter() - req.metrics.arrival
        return admission

    def _admitted(self, req: Request, admission: Admission) -> None:
        """Put a request where its admission says."""
        if admission.state is AdmitState.READY:
            self.queues.waiting.append(req)
        elif admission.state is AdmitState.COMPILING:
            self.queues.compiling[req.rid] = req
        else:
            error = admission.error or RequestError(f"request {req.rid} was rejected without a reason")
            self._end(req, FinishReason("error", error=error))

    # 2
    def _ready(self) -> None:
        self._polling = True
        for req, admission in self._policy.poll():
            if self.queues.compiling.pop(req.rid, None) is not None:
                req.metrics.compile_s = time.perf_counter() - req.metrics.arrival
                self._admitted(req, admission)
        self._polling = False
        self._tracer.phase("ready")

    # 3
    def _requeue(self) -> None:
        if self.queues.running:
            self._at_hand = list(self.queues.running)
            requeue = self._before_decode()
            for req in requeue.reqs:
                self.queues.drop(req)
                self._tracer.moved(req, "requeued", requeue.notes.get(req.rid))
                req.ending = self._finisher.recheck(req)
                if req.ending is None or req.unscored_from is not None:
                    self.queues.waiting.append(req)  # one that ends comes back once more, for its log-probabilities
                else:
                    self._end(req, req.ending)
        self._at_hand = []
        self._tracer.phase("requeue")

    def _before_decode(self) -> Requeue:
        try:
            return self._policy.before_decode(ScheduleBatch.about_to_decode(self.queues.running))
        except Exception as error:  # a defect of the stage: without an end to its requests, it would come every turn
            reason = EngineStateError(f"the stage failed: {type(error).__name__}: {error}", where="before_decode")
            for req in [req for req in self.queues.running if req.has_grammar]:
                self._end(req, FinishReason("error", error=reason))
            return Requeue()

    # 4
    def _schedule(self) -> ScheduleBatch | None:
        batch = self._builder.next_batch()
        self._at_hand = [] if batch is None else batch.reqs
        self._end_forced()
        if batch is None and self.queues.compiling:
            time.sleep(_COMPILE_NAP_S)  # nothing to do but to wait for a compile: leave the core to it
        self._tracer.phase("schedule")
        return batch

    def _end_forced(self) -> None:
        """Forced tokens may have ended a request before the pass."""
        for req, reason in [(req, req.finish) for req in (*self.queues.in_memory, *self.queues.waiting)]:
            if reason is not None:
                self._end(req, reason)

    # 5
    def _forward(self, batch: ScheduleBatch) -> Tensor:
        """[len(batch.sampled), width] float32, the rows to sample from."""
        self._tracer.scheduled(batch)
        forward_batch = batch.forward_batch(self._device)
        self._tracer.event("launch")
        logits = self._scored(batch, self._runner.forward(forward_batch))
        self._tracer.phase("forward")
        return logits

    def _scored(self, batch: ScheduleBatch, logits: Tensor) -> Tensor:
        """Tokens that stand already get their log-probabilities on the way to the rows to sample from."""
        for rows in [rows for rows in batch.scored_rows if not rows.req.finished]:
            self._chooser.score(rows, logits[rows.first:rows.last])
        return batch.sampled_logits(logits)

    # 6
    def _constrain(self, logits: Tensor, batch: ScheduleBatch) -> Support:
        support = self._chooser.constrain(logits, batch)
        self._tracer.event("mask_ready")
        self._tracer.phase("constrain")
        return support

    # 7
    def _sample(self, logits: Tensor, batch: ScheduleBatch, support: Support) -> list[Run]:
        runs = self._chooser.sample(logits, batch, support)
        self._tracer.event("sampled")
        self._tracer.phase("sample")
        return runs

    # 8 and 9: `ResultProcessor`, and what they mean for the memory

    def _book(self, batch: ScheduleBatch, runs: Sequence[Run]) -> None:
        """The pass is done: what it wrote is in memory now, and its prefixes can be shared.

        Keys and values of drafts that were not taken are given back: what is committed is what was emitted.
        """
        kept = {run.req.rid: run.kept_draft for run in runs}
        for row in batch.rows:
            unused = row.draft - kept.get(row.req.rid, 0)
            if row.wasted:
                unused = len(row.ids)
            else:
                row.req.kv_len = row.end - unused
                row.req.metrics.forward_passes += 1
            if unused:
                self.memory.pool.free(row.slots[len(row.ids) - unused:])
        self._builder.settle(batch.rows)
        if batch.mode is ForwardMode.EXTEND:
            for row in batch.rows:
                if not row.wasted and row.ending is None:
                    self._prefilled(row)

    def _prefilled(self, row: BatchRow) -> None:
        """The prompt, or a chunk of it, is in memory."""
        self.memory.share(row.req)
        if row.samples:
            self.queues.prefilling.remove(row.req)
            self.queues.running.append(row.req)

    def _retire(self, batch: ScheduleBatch) -> None:
        """Let go of what has ended with this pass."""
        for row in batch.rows:
            if row.ending is not None and not row.wasted:
                self._end(row.req, row.ending)

    def _end(self, req: Request, reason: FinishReason) -> None:
        """The one way out of the loop, whatever the reason and wherever the request is."""
        self._builder.waste(req)
        self.queues.drop(req)
        self.memory.release(req)
        req.finish = reason
        if req.detokenizer is not None:
            req.unsent += req.detokenizer.flush()
        self._policy.release(req, reason.kind)
        req.metrics.finished = time.perf_counter()
        self.ended.append(req)
        self._live.pop(id(req), None)
        self._tracer.moved(req, "ended")

    def _record(self) -> StepRecord | None:
        self._tracer.phase("finish")
        return self._tracer.end(self.queues, self.memory)
