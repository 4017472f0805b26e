"""The loop with overlap: the CPU processes the results of pass n while the model computes pass n + 1.

The steps are those of `Scheduler`, in another order. A turn processes the results of the pass that the turn before has
launched, and launches the next one; it returns with that one on its way, so that whoever reads the tokens has them
early, and what he does with them overlaps too. Here with delayed sampling, stage 5's way (#11507): pass n + 1 starts as
soon as the tokens of n are known, and is sampled when the results of n are in and its mask is filled.

    launch(n+1) < results_processed(n) < mask_ready(n+1) < sampled(n+1)

Where the gate is shut (`gate.py`), results_processed(n) < launch(n+1); the mask is filled beside the pass all the same.

A request may end in the results of n while its row in n + 1 is computed already. Such a row is wasted: it is not
masked, sampled or accepted, and its slot goes back when its pass is booked. Rows that are sure to end are not launched:
the token is known.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from torch import Tensor

from shared_runtime.batch_builder import NewestToken
from shared_runtime.config import EngineConfig
from shared_runtime.errors import ConfigError
from shared_runtime.execution.flight import Flight, Passes, Pending, StreamPasses, ThreadPasses
from shared_runtime.execution.gate import Candidate, gate_reason
from shared_runtime.execution.rank_group import RankGroup
from shared_runtime.filled_mask import FillsAhead
from shared_runtime.forward_batch import ForwardBatch, ForwardMode
from shared_runtime.kv_memory import KVMemory
from shared_runtime.model_runner import ModelRunner
from shared_runtime.policy import OverlapScheme, StagePolicy
from shared_runtime.request import FinishReason
from shared_runtime.schedule_batch import BatchRow, ScheduleBatch
from shared_runtime.scheduler import Scheduler
from shared_runtime.token_chooser import Support
from shared_runtime.trace import GateReason, StepRecord
from shared_runtime.tracer import Tracer
from shared_runtime.verification import Run
from shared_runtime.vocabulary import Vocabulary

T = TypeVar("T")


@dataclass(slots=True)
class Tokens:
    """What was sampled in a pass; empty when nothing was. `logits` and `support` as in step 7."""

    runs: list[Run] = field(default_factory=list)
    logits: Tensor | None = None
    support: Support | None = None


@dataclass(slots=True)
class Outlook:
    """What is known of a pass whose results are not in.

    Attributes:
        newest: the newest token of each request that may go on, by request id. leaving: requests that surely end.
    """

    newest: dict[str, NewestToken] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)


class OverlapScheduler(Scheduler, Generic[T]):
    """What the ways to overlap have in common; T is what a pass computes.

    Args:
        config, vocabulary, runner, memory, policy, tracer, ranks: as `Scheduler`.

    Raises:
        ConfigError: the stage's policy cannot fill a mask before the logits are there.
    """

    scheme: OverlapScheme

    def __init__(self, config: EngineConfig, vocabulary: Vocabulary, runner: ModelRunner, memory: KVMemory,
                 policy: StagePolicy, tracer: Tracer, ranks: RankGroup) -> None:
        super().__init__(config, vocabulary, runner, memory, policy, tracer, ranks)
        if not isinstance(policy, FillsAhead):
            raise ConfigError("this stage fills no mask before the logits are there", where="overlap",
                              fix="switch it off, or give the policy a fill_mask")
        self._stage = policy
        self._options = config.options
        self._threads = config.thread_count if self._device.type == "cpu" else None
        self._passes = self._make_passes()
        self._flights: deque[Flight[T]] = deque()
        self._landing: list[BatchRow] = []
        self._at_work = False

    @property
    def has_work(self) -> bool:
        """True while a turn has something to do; a pass on its way must be waited for, even a wasted one."""
        return bool(self._flights) or super().has_work

    @property
    def in_flight(self) -> list[Tensor]:
        """The slots that passes on their way are writing to."""
        return [row.slots for flight in self._flights for row in flight.batch.rows]

    def close(self) -> None:
        """Wait for what is on its way, and end the thread."""
        for flight in self._flights:
            self._let_go(flight)
        self._passes.close()
        while self._flights:
            self._book_first([])

    def _turn(self) -> StepRecord | None:
        self._tracer.begin()
        self._intake()
        self._ready()
        self._at_work = True
        flight = self._first_flight()
        if flight is not None:
            self._landing = flight.batch.rows
            self._process(flight, self._land(flight))
            self._get_next_ready()
        self._at_work, self._landing, self._at_hand = False, [], []
        return self._record()

    # what differs

    @abstractmethod
    def _land(self, flight: Flight[T]) -> Tokens:
        """Wait for the tokens of a pass, and launch the next one on the way, if the gate lets it."""

    @abstractmethod
    def _make_passes(self) -> Passes:
        """Where passes are computed."""

    @abstractmethod
    def _start(self, batch: ScheduleBatch, forward_batch: ForwardBatch) -> Pending[T]:
        """Let the pass be computed."""

    @abstractmethod
    def _let_go(self, flight: Flight[T]) -> None:
        """Nobody will ask for the tokens of this pass: it must not wait for anything."""

    def _let_go_unnoted(self) -> None:
        """As `_let_go`, of a pass that was started while the turn was interrupted, and is in no flight."""

    # launching

    def _first_flight(self) -> Flight[T] | None:
        """The pass whose results come next; launched now if none is on its way, None when nothing can run."""
        if not self._flights:
            batch = self._schedule()
            if batch is not None:
                self._prepare(self._launch(batch))
        return self._flights[0] if self._flights else None

    def _launch(self, batch: ScheduleBatch) -> Flight[T]:
        forward_batch = batch.forward_batch(self._device)
        self._tracer.event("launch")
        flight = Flight(batch, self._start(batch, forward_batch))
        self._flights.append(flight)
        return flight

    def _launch_ahead(self, pending: ScheduleBatch, outlook: Outlook) -> None:
        """Launch the next pass before the results of `pending` are in, if the gate lets it."""
        with self._tracer.next_turn():
            batch, reason = self._schedule_ahead(pending, outlook)
            if batch is not None:
                self._launch(batch)
        self._tracer.gated(reason)
        self._tracer.phase("schedule")

    def _schedule_ahead(self, pending: ScheduleBatch,
                        outlook: Outlook) -> tuple[ScheduleBatch | None, GateReason | None]:
        """Step 4, ahead: an EXTEND batch if any request fits, else a DECODE batch, each if the gate lets it."""
        reason = gate_reason(Candidate(ForwardMode.EXTEND), pending, self._options, self.scheme)
        if reason is not None:
            return None, reason
        batch = self._builder.extend()
        self._end_forced()
        if batch is not None:
            return batch, None
        reqs = [req for req in self.queues.running if req.rid not in outlook.leaving]
        if not reqs:
            return None, "nothing_to_run"
        reason = gate_reason(Candidate(ForwardMode.DECODE, reqs, self.memory.room), pending, self._options, self.scheme)
        return (None, reason) if reason is not None else (self._builder.decode_ahead(reqs, outlook.newest), None)

    def _get_next_ready(self) -> None:
        """All results are in: launch what was not launched ahead, and fill its mask while it is computed."""
        with self._tracer.next_turn():
            if not self._flights:
                batch = self._schedule()
                if batch is not None:
                    self._launch(batch)
            if self._flights:
                self._prepare(self._flights[0])

    def _prepare(self, flight: Flight[T]) -> None:
        """Step 6, as far as it needs no logits: whatever the mask depends on has been accepted."""
        batch = flight.batch
        batch.drop_wasted_rows()
        self._tracer.scheduled(batch)
        if batch.sampled:
            flight.preparation = self._chooser.prepare(batch, self._stage)
            self._tracer.event("mask_ready")
        self._tracer.phase("constrain")

    # landing

    def _process(self, flight: Flight[T], tokens: Tokens) -> None:
        """Steps 8 and 9."""
        batch = flight.batch
        if tokens.logits is not None and tokens.support is not None:
            accepted = self._results.accept(batch, tokens.runs)
            self._results.emit(tokens.logits, tokens.support, tokens.runs, accepted)
        if self._flights and self._flights[0] is flight:  # how many of its drafts count is known now
            self._book_first(tokens.runs)
        self._retire(batch)

    def _book_early(self, flight: Flight[T]) -> None:
        """The pass is done, and what it wrote is in memory whatever its results; but for drafts, where that is one."""
        if not any(row.draft for row in flight.batch.rows):
            self._book_first([])

    def _book_first(self, runs: list[Run]) -> None:
        self._book(self._flights.popleft().batch, runs)

    # failing

    def _take_back(self, reason: FinishReason) -> None:
        """End the requests of the passes that the turn worked on.

        What a pass on its way still writes to stays its own until it is done.
        """
        launched = [row for flight in self._flights for row in flight.batch.rows]
        flying = {id(row) for row in launched}
        grounded = [row for row in self._builder.unsettled if id(row) not in flying]
        for row in grounded:
            self.memory.pool.free(row.slots)
        self._builder.unsettled = launched
        failed = [row.req for row in [*grounded, *(self._landing + launched if self._at_work else [])]]
        for req in [*failed, *self._builder.drop_at_hand()]:
            if req.table_row is not None:
                self._end(req, reason)
        self._at_work, self._landing = False, []
        for flight in self._flights:
            if flight.wasted:
                self._let_go(flight)
        self._let_go_unnoted()
        while self._flights and self._flights[0].wasted and self._flights[0].computed.done():
            self._book_first([])

    def _start_afresh(self, reason: FinishReason) -> None:
        """Also, no pass may be on its way: it would write into memory that has another owner by then."""
        for flight in self._flights:
            self._let_go(flight)
        self._let_go_unnoted()  # before any wait: a pass that nobody lets go keeps all behind it
        for flight in self._flights:
            flight.computed.exception()
            self._builder.unsettled += flight.batch.rows
        self._at_hand = [row.req for row in self._landing]
        self._flights.clear()
        self._at_work, self._landing = False, []
        super()._start_afresh(reason)


class DelayedScheduler(OverlapScheduler[Tensor]):
    """Delayed sampling: the pass alone runs beside the loop; its logits are sampled here, when the results are in."""

    scheme = "delayed"

    def _make_passes(self) -> Passes:
        return StreamPasses(self._device) if self._device.type == "cuda" else ThreadPasses(self._threads)

    def _start(self, batch: ScheduleBatch, forward_batch: ForwardBatch) -> Pending[Tensor]:
        return self._passes.start(lambda: self._runner.forward(forward_batch))

    def _let_go(self, flight: Flight[Tensor]) -> None:
        """A pass waits for nothing."""

    def _land(self, flight: Flight[Tensor]) -> Tokens:
        if flight.wasted:
            flight.computed.exception()  # waited for, and nobody's concern
            self._book_early(flight)
            return Tokens()
        tokens = self._sampled(flight)
        self._book_early(flight)
        self._launch_ahead(flight.batch, self._outlook(tokens))
        return tokens

    def _sampled(self, flight: Flight[Tensor]) -> Tokens:
        logits = self._scored(flight.batch, flight.computed.result())
        self._tracer.phase("forward")
        if flight.preparation is None:
            return Tokens()
        support = self._chooser.constrain(logits, flight.batch, flight.preparation)
        self._tracer.phase("constrain")
        return Tokens(flight.live(self._sample(logits, flight.batch, support)), logits, support)

    def _outlook(self, tokens: Tokens) -> Outlook:
        outlook = Outlook()
        for run in tokens.runs:
            if self._finisher.surely_ends(run.req, run.token_ids):
                outlook.leaving.add(run.req.rid)
            else:
                outlook.newest[run.req.rid] = NewestToken(run.req.total_len, run.token_ids[-1])
        return outlook
