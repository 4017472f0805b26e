"""The loop with overlap by an event, stage 4's way (ffd20fcd03, #2095): the worker runs the pass and samples, too.

The scheduler hands pass n + 1 to the worker while n is still being computed, before any token of n is known: its newest
tokens are places that the worker fills from what it samples in n. So the worker goes from pass to pass without waiting
for the scheduler, but for one thing: the mask of n + 1 depends on the tokens of n. Each pass carries an event; the
scheduler processes the results of n, fills the mask and sets it, and the worker, which is through with its matrices by
then or not, samples. Upstream waited for passes with a grammar only; here also penalties and noise follow from the
output, so all passes wait.

What it costs: the next batch is put together without knowing whose answer ends, so each end by a stop token wastes a
row; and a stage cannot rewrite a request whose next pass is running (`StageOptions.beside_overlap`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shared_runtime.batch_builder import NewestToken
from shared_runtime.execution.flight import Flight, Passes, Pending, ThreadPasses
from shared_runtime.execution.overlap_loop import Outlook, OverlapScheduler, Tokens
from shared_runtime.execution.side_stream import Mark, SideStream
from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.sampler import SampleOutput
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.token_chooser import Preparation, Support
from shared_runtime.trace import EventName


@dataclass(slots=True)
class Permit:
    """What the worker waits for before it samples: the mask, when it is filled, or word that nobody wants a token.

    Every pass has one, and it is given exactly once: a pass without would keep the worker, and all passes behind it,
    for ever (museum row 40).
    """

    preparation: Preparation | None = None
    mark: Mark = None
    _given: threading.Event = field(default_factory=threading.Event)

    @property
    def given(self) -> bool:
        """Whether the worker may go on."""
        return self._given.is_set()

    def give(self, preparation: Preparation | None, mark: Mark = None) -> None:
        """Let the worker go on, once; None when there is nothing to sample."""
        if self.given:
            raise AssertionError("a pass is sampled once")
        self.preparation, self.mark = preparation, mark
        self._given.set()

    def wait(self) -> Preparation | None:
        """On the worker: how to choose, None when there is nothing to choose."""
        self._given.wait()
        return self.preparation


@dataclass(slots=True)
class Landed:
    """What the worker made of a pass: all logits, and of the sampled rows what was chosen, and how.

    Attributes:
        logits: [R, width] of the pass. sampled: [rows, width] that were sampled from; None when nothing was.
        support, output: as steps 6 and 7 have them. masked: a copy before stop tokens were settled, for the trace.
    """

    logits: Tensor
    sampled: Tensor | None = None
    support: Support | None = None
    output: SampleOutput | None = None
    masked: Tensor | None = None


class EventScheduler(OverlapScheduler[Landed]):
    """A worker thread computes and samples; `Permit` is the event."""

    scheme = "event"

    def _make_passes(self) -> Passes:
        self._stream = SideStream(self._device)
        self._permits: dict[int, Permit] = {}
        self._newest: list[int] = []  # what the worker sampled last; its own
        return ThreadPasses(self._threads)

    def _start(self, batch: ScheduleBatch, forward_batch: ForwardBatch) -> Pending[Landed]:
        permit = self._permits[id(batch)] = Permit()
        mark, sampled = self._stream.mark(), self._tracer.marker()
        return self._passes.start(lambda: self._compute(batch, forward_batch, permit, mark, sampled))

    def _prepare(self, flight: Flight[Landed]) -> None:
        for row in flight.batch.rows:
            if row.ids[0] < 0:  # the trace shows what the worker has put there
                row.ids = row.req.all_ids[row.start:row.end] or row.ids
        super()._prepare(flight)
        permit = self._permits.get(id(flight.batch))
        if permit is not None:  # not of a pass that a failed turn has let go
            permit.give(flight.preparation, self._stream.mark())
            del self._permits[id(flight.batch)]  # behind the gift: an interrupt in between must not leave it ungiven

    def _let_go(self, flight: Flight[Landed]) -> None:
        self._withdraw(id(flight.batch))

    def _let_go_unnoted(self) -> None:
        for key in self._permits.keys() - {id(flight.batch) for flight in self._flights}:
            self._withdraw(key)

    def _withdraw(self, key: int) -> None:
        permit = self._permits.pop(key, None)
        if permit is not None and not permit.given:
            permit.give(None)

    def _land(self, flight: Flight[Landed]) -> Tokens:
        if flight.wasted:
            flight.computed.exception()  # waited for, and nobody's concern
            self._book_early(flight)
            return Tokens()
        self._launch_ahead(flight.batch, self._outlook(flight.batch))
        tokens = self._sampled(flight)
        self._book_early(flight)
        return tokens

    def _sampled(self, flight: Flight[Landed]) -> Tokens:
        batch, landed = flight.batch, flight.computed.result()
        self._scored(batch, landed.logits)
        self._tracer.phase("forward")
        if landed.sampled is None or landed.support is None or landed.output is None:
            return Tokens()
        shown = landed.sampled if landed.masked is None else landed.masked
        self._tracer.masked(batch, landed.support.raw, shown, landed.support.filled)
        runs = flight.live(self._chooser.runs(batch, landed.output))
        self._tracer.phase("sample")
        return Tokens(runs, landed.sampled, landed.support)

    def _outlook(self, batch: ScheduleBatch) -> Outlook:
        """No token is known, so only the length limit tells that a request ends."""
        outlook = Outlook()
        for index, req in enumerate(batch.sampled):
            if self._finisher.is_full(req, coming=1):
                outlook.leaving.add(req.rid)
            else:
                outlook.newest[req.rid] = NewestToken(req.total_len, -1 - index)
        return outlook

    # on the worker

    def _compute(self, batch: ScheduleBatch, forward_batch: ForwardBatch, permit: Permit, mark: Mark,
                 sampled: Callable[[EventName], None]) -> Landed:
        newest, self._newest = self._newest, []
        with self._stream.behind(mark):
            forward_batch.input_ids = _filled_in(forward_batch.input_ids, newest)
            logits = self._runner.forward(forward_batch)
            preparation = permit.wait()
            if preparation is None:
                return Landed(logits)
            self._stream.wait(permit.mark)
            rows = batch.sampled_logits(logits)
            support = self._chooser.restrict(rows, batch, preparation)
            masked = rows.clone() if self._tracer.wants_logits else None
            output = self._chooser.choose(rows, batch, support)
            self._newest = output.token_ids
        sampled("sampled")
        return Landed(logits, rows, support, output, masked)


def _filled_in(input_ids: Tensor, newest: list[int]) -> Tensor:
    """[T] int64 without places: id -1 - i is the i-th newest token, 0 where there is none and nothing will count."""
    if not newest:
        return input_ids.clamp(min=0)
    tokens = torch.tensor(newest, dtype=torch.int64, device=input_ids.device)
    places = (-1 - input_ids).clamp(min=0, max=len(newest) - 1)
    return torch.where(input_ids < 0, tokens[places], input_ids).clamp(min=0)
