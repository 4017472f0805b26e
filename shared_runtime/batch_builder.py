"""Which requests run in the next pass, and on which slots: step 4 of the loop."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared_runtime.config import EngineConfig
from shared_runtime.errors import EngineStateError
from shared_runtime.finisher import Finisher
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.kv_memory import KVMemory
from shared_runtime.policy import AcceptResult, StagePolicy
from shared_runtime.queues import Queues
from shared_runtime.request import Request
from shared_runtime.schedule_batch import BatchRow, ScheduleBatch
from shared_runtime.trace import TokenOrigin
from shared_runtime.tracer import Tracer
from shared_runtime.waiting_queue import NewTokenEstimator


@dataclass(frozen=True, slots=True)
class NewestToken:
    """A request's newest token while the results of its pass are not in: it is not in the output yet.

    Attributes:
        position: where in the request it will stand.
        token_id: the token; or -1 - i for the token that row i of the pass before is going to sample.
    """

    position: int
    token_id: int


class BatchBuilder:
    """Builds an EXTEND batch if any request fits, else a DECODE batch.

    Attributes:
        estimator: how much memory to keep for what is still to be written.
        unsettled: rows whose slots are taken and not booked yet.
        at_hand: whose row is being made; None between batches.

    Invariant it lives on: a request is admitted by the engine only if its prompt and `max_new_tokens` fit into the
    whole pool. So a request that is alone always fits, and there is always a way on.
    """

    def __init__(self, config: EngineConfig, memory: KVMemory, queues: Queues, policy: StagePolicy,
                 finisher: Finisher, tracer: Tracer) -> None:
        self._config = config
        self._memory = memory
        self._queues = queues
        self._policy = policy
        self._finisher = finisher
        self._tracer = tracer
        self.estimator = NewTokenEstimator(config.new_token_ratio)
        self.unsettled: list[BatchRow] = []
        self.at_hand: Request | None = None

    def next_batch(self) -> ScheduleBatch | None:
        """The batch of this turn, its slots taken; None when nothing can run."""
        return self.extend() or self._decode()

    def extend(self) -> ScheduleBatch | None:
        """A batch of waiting requests, in memory by now; None when none fits."""
        rows = self._extend_rows()
        self.at_hand = None
        return ScheduleBatch(ForwardMode.EXTEND, rows) if rows else None

    def _extend_rows(self) -> list[BatchRow]:
        rows: list[BatchRow] = []
        budget = self._config.chunked_prefill_size
        chunked = self._queues.chunked
        if chunked is not None:
            self.at_hand = chunked
            row = self._row(chunked, budget)
            if row is None:
                return []
            rows.append(row)
            budget -= len(row.ids)
            self._place(row)
        for req in self._queues.waiting.in_order(self._memory.cache):
            self.at_hand = req
            row = self._admit(req, budget, rows)
            if req.finish is not None:
                continue  # by forced tokens
            if row is None:
                break
            rows.append(row)
            budget -= len(row.ids)
            self._queues.waiting.remove(req)
            self._place(row)
        return rows

    def _place(self, row: BatchRow) -> None:
        """Where the request of an EXTEND row is until the pass is done."""
        self._queues.chunked = None if row.samples else row.req
        if row.samples:
            self._queues.prefilling.append(row.req)
        metrics = row.req.metrics
        if metrics.admitted is None:
            metrics.admitted, metrics.cached_tokens = time.perf_counter(), row.start

    def _admit(self, req: Request, budget: int, rows: list[BatchRow]) -> BatchRow | None:
        """A row for a waiting request, or None when budget, batch or memory has no room for it."""
        live = len(self._queues.running) + len(rows)
        if budget < 1 or self._queues.chunked is not None or live >= self._config.max_running_requests:
            return None
        # The logits before a token are computed with the token in front of it, so that one must be fed.
        reusable = req.total_len - 1 if req.unscored_from is None else req.unscored_from - 1
        if not self._memory.attach(req, reusable):
            return None
        others = [*self._queues.running, *(row.req for row in rows)]
        needed = req.total_len - req.kv_len + self.estimator.reserve([req])
        if needed > self._memory.room - self.estimator.reserve(others):
            self._memory.release(req)
            return None
        return self._row(req, budget)

    def _row(self, req: Request, budget: int) -> BatchRow | None:
        """Feed as much of `req` as budget and memory allow; None when that is nothing, or when it ends.

        Where its last token is fed, there may be a proposal behind it.
        """
        most = min(budget, self._memory.room)
        draft = self._propose(req) if req.total_len - req.kv_len <= most else ()
        return self._fed(req, most, draft) if most > 0 and req.finish is None else None

    def _fed(self, req: Request, most: int, draft: tuple[int, ...]) -> BatchRow:
        """A row of at most `most` of the tokens that are not in memory yet and, behind the last, the draft."""
        text = req.all_ids[req.kv_len:]
        draft = draft[:max(0, most - len(text))]
        ids = [*text[:most], *draft]
        slots = self._memory.take(len(ids))
        if slots is None:
            raise AssertionError("room was checked before")
        self._memory.write(req, slots)
        unscored = req.unscored_from
        row = BatchRow(req, start=req.kv_len, ids=ids, slots=slots, draft=len(draft),
                       samples=len(text) <= most and req.ending is None,
                       scores_from=None if unscored is None else unscored - 1)
        self.unsettled.append(row)
        return row

    def _decode(self) -> ScheduleBatch | None:
        queues = self._queues
        before = len(queues.in_memory)
        while queues.running and self._memory.room < len(queues.running):
            self.retract(max(queues.in_memory, key=lambda req: req.priority))
        if not queues.running:
            return None
        if len(queues.in_memory) == before:
            self.estimator.decoded()
        rows = []
        spare = self._memory.room - len(queues.running)
        for req in list(queues.running):
            self.at_hand = req
            draft = self._propose(req)
            if req.finish is None:
                row = self._fed(req, 1 + spare, draft)
                spare -= len(row.ids) - 1
                rows.append(row)
        self.at_hand = None
        return ScheduleBatch(ForwardMode.DECODE, rows) if rows else None

    def decode_ahead(self, reqs: Sequence[Request], newest: Mapping[str, NewestToken]) -> ScheduleBatch:
        """A DECODE batch of `reqs` before the results of the pass before are in; there must be room for it.

        Nobody is retracted and no stage is asked for tokens: both follow from the results.

        Args:
            reqs: who runs on. newest: of those that were in the pass before, by request id.
        """
        self.estimator.decoded()
        return ScheduleBatch(ForwardMode.DECODE, [self._row_ahead(req, newest.get(req.rid)) for req in reqs])

    def _row_ahead(self, req: Request, token: NewestToken | None) -> BatchRow:
        start = req.kv_len if token is None else token.position
        ids = req.all_ids[start:] if token is None else [token.token_id]
        slots = self._memory.take(len(ids))
        if slots is None:
            raise AssertionError("room was checked before")
        self._memory.write(req, slots, start)
        row = BatchRow(req, start, ids, slots)
        self.unsettled.append(row)
        return row

    def _propose(self, req: Request) -> tuple[int, ...]:
        """Ask the stage for tokens behind those of `req`; appends the forced ones, returns the draft.

        Forced tokens may be more than there is memory for now, and are then fed bit by bit: how a text is written must
        not depend on who else is there. They may end the request: at once, or `ending` with the pass that scores them,
        where that was asked for.
        """
        room = req.sampling.max_new_tokens - len(req.output_ids)
        if req.ending is not None or room < 1:
            return ()
        proposal = self._policy.propose(req, room)
        if len(proposal.forced) + len(proposal.draft) > room:
            raise EngineStateError(f"the stage proposed more than the {room} tokens there is room for",
                                   where=f"request {req.rid}")
        if proposal.forced:
            origins: list[TokenOrigin] = ["forced"] * len(proposal.forced)
            emitted = self._finisher.emit(req, proposal.forced, AcceptResult(len(proposal.forced)), origins)
            req.metrics.emitted_tokens = len(req.output_ids)
            self._tracer.emitted(req, emitted)
            if req.finish is not None:
                if req.unscored_from is not None:
                    req.ending, req.finish = req.finish, None
                return ()
        # A token is sampled behind the draft; there must be a place for that one, too.
        return self._finisher.known(proposal.draft)[:room - len(proposal.forced) - 1]

    def settle(self, rows: Sequence[BatchRow]) -> None:
        """The slots of `rows` are booked."""
        booked = {id(row) for row in rows}
        self.unsettled = [row for row in self.unsettled if id(row) not in booked]

    def drop_at_hand(self) -> list[Request]:
        """Making a row has failed: whose, if any. It may hold memory, and its grammar may have moved already."""
        req, self.at_hand = self.at_hand, None
        return [] if req is None else [req]

    def waste(self, req: Request) -> None:
        """The request leaves memory: what passes on their way compute for it counts no more."""
        for row in self.unsettled:
            row.wasted = row.wasted or row.req is req

    def retract(self, req: Request) -> None:
        """Put a request back into the queue. It keeps its output and its grammar's state; only memory is lost."""
        self.waste(req)
        self._queues.drop(req)
        self._memory.release(req)
        self._policy.retract(req)
        self._queues.waiting.put_back(req)
        self.estimator.retracted()
        req.metrics.retractions += 1
        self._tracer.moved(req, "retracted")
