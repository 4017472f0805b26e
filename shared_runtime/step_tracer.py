"""Fills a `StepRecord` while a turn of the loop goes by."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

import torch
from torch import Tensor

from shared_runtime.errors import ConfigError
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.trace import (
    Candidate,
    Event,
    EventName,
    GateReason,
    OverlapRecord,
    RequestRecord,
    RewriteRecord,
    StepRecord,
    TokenRecord,
)
from shared_runtime.tracer import Moved
from shared_runtime.vocabulary import Vocabulary

if TYPE_CHECKING:
    from shared_runtime.kv_memory import KVMemory
    from shared_runtime.queues import Queues
    from shared_runtime.request import Request
    from shared_runtime.schedule_batch import ScheduleBatch

TOP_CANDIDATES = 8

Describe = Callable[["Request"], dict[str, object]]


@dataclass(slots=True)
class _Page:
    """The record of one turn in the making, and its requests by id."""

    record: StepRecord
    by_rid: dict[str, RequestRecord] = field(default_factory=dict)


class StepTracer:
    """Fills one `StepRecord` a turn and, given a path, writes it as a line of JSON.

    Args:
        vocabulary: to show tokens as text. describe: the policy's view of a grammar's state.
        path: a file for JSON lines; None keeps the records to the caller of `step()`.
        with_tree: put a snapshot of the prefix cache into each record.
    """

    wants_logits = True

    def __init__(self, vocabulary: Vocabulary, describe: Describe, *, path: Path | None = None,
                 with_tree: bool = False) -> None:
        self._vocabulary = vocabulary
        self._describe = describe
        self._with_tree = with_tree
        self._file: TextIO | None = None if path is None else _open(path)
        self._turns = 0
        self._events = 0
        self._numbering = threading.Lock()
        self._page = self._turn = _Page(StepRecord(step=0))
        self._next_page: _Page | None = None
        self._early: dict[str, list[TokenRecord]] = {}
        self._notes: dict[str, RewriteRecord] = {}
        self._last = 0.0

    def begin(self) -> None:
        """Open the record of the next turn; it exists already when its pass was launched ahead."""
        self._page = self._next_page or self._new_page()
        self._next_page = None
        self._turn = self._page
        self._last = time.perf_counter()

    @contextlib.contextmanager
    def next_turn(self) -> Iterator[None]:
        """Write into the next record meanwhile."""
        self._page = self._next_page = self._next_page or self._new_page()
        try:
            yield
        finally:
            self._page = self._turn

    def _new_page(self) -> _Page:
        self._turns += 1
        return _Page(StepRecord(step=self._turns - 1))

    def _take_back(self, unused: StepRecord) -> None:
        """No pass came of the next turn's record: what was told of it belongs to this one."""
        self._turns, self._next_page = unused.step, None
        self._turn.record.retracted += unused.retracted
        self._turn.record.ended += unused.ended

    def phase(self, name: str) -> None:
        """Book the time since the phase before."""
        now = time.perf_counter()
        spent = self._turn.record.ms  # whichever pass it was spent on, it was spent in this turn
        spent[name] = spent.get(name, 0.0) + (now - self._last) * 1e3
        self._last = now

    def event(self, name: EventName) -> None:
        """Number and keep the event."""
        self.marker()(name)

    def marker(self) -> Callable[[EventName], None]:
        """`event` for the record that is open now, whichever thread calls it."""
        record = self._page.record

        def mark(name: EventName) -> None:
            with self._numbering:
                record.events.append(Event(self._events, name, record.step))
                self._events += 1

        return mark

    def gated(self, reason: GateReason | None) -> None:
        """Show what the gate said."""
        self._turn.record.overlap = OverlapRecord(on=reason is None, gate_reason=reason)

    def moved(self, req: Request, how: Moved, note: RewriteRecord | None = None) -> None:
        """Note the request under what happened to it; show how it ended, or what was done to it."""
        {"retracted": self._page.record.retracted, "requeued": self._page.record.requeued,
         "ended": self._page.record.ended}[how].append(req.rid)
        if req.finish is not None and req.rid in self._page.by_rid:
            self._page.by_rid[req.rid].finish = req.finish.kind
        if note is not None:
            self._notes[req.rid] = note

    def scheduled(self, batch: ScheduleBatch) -> None:
        """One `RequestRecord` a row."""
        mode: Literal["extend", "decode"] = "extend" if batch.mode is ForwardMode.EXTEND else "decode"
        self._page.record.mode = mode
        for row in batch.rows:
            record = RequestRecord(
                rid=row.req.rid, mode=mode, fed=list(row.ids), kv_len=row.end, slots=row.slots.tolist(),
                prefix_hit=row.start if mode == "extend" else 0, sampled=row.samples,
                state_before=self._describe(row.req))
            record.explain(self._notes.pop(row.req.rid, None))
            record.tokens = self._early.pop(row.req.rid, [])
            self._page.by_rid[row.req.rid] = record
            self._page.record.requests.append(record)

    def masked(self, batch: ScheduleBatch, raw: Tensor | None, logits: Tensor, filled: Sequence[int]) -> None:
        """Distributions before and after the mask, for the sampled rows."""
        self._page.record.has_grammar = batch.has_grammar
        self._page.record.grammars_filled = list(filled)
        if raw is None:
            return
        before = torch.softmax(raw, dim=-1)
        allowed = torch.isfinite(logits)
        for index, req in enumerate(batch.sampled):
            if batch.ahead and batch.ahead[index]:
                continue  # behind a draft; the record shows the position that is sure to be reached
            record = self._page.by_rid[req.rid]
            record.n_allowed = int(allowed[index].sum())
            record.allowed_mass = _short(min(1.0, float(before[index][allowed[index]].sum(dtype=torch.float64))))
            record.top_raw = self._top(before[index])
            if record.n_allowed:
                record.top_masked = self._top(torch.softmax(logits[index], dim=-1))

    def emitted(self, req: Request, token_ids: Sequence[int]) -> None:
        """Show the tokens with their origins, and the grammar's state behind them."""
        origins = req.origins[len(req.origins) - len(token_ids):]
        shown = [TokenRecord(token_id, self._vocabulary.shown(token_id), origin)
                 for token_id, origin in zip(token_ids, origins, strict=True)]
        if req.rid in self._page.by_rid:
            record = self._page.by_rid[req.rid]
            record.tokens += shown
            record.state_after = self._describe(req)
        else:  # forced tokens, appended before the pass that reads them
            self._early[req.rid] = shown

    def verified(self, req: Request, draft: Sequence[int], accepted: int) -> None:
        """Show the draft, and count it."""
        self._page.by_rid[req.rid].draft = [
            TokenRecord(token_id, self._vocabulary.shown(token_id),
                        "draft_accepted" if index < accepted else "draft_rejected")
            for index, token_id in enumerate(draft)]
        self._page.record.spec.drafted += len(draft)
        self._page.record.spec.accepted += accepted

    def synced(self) -> None:
        """Note it."""
        self._page.record.tp_token_sync = True

    def end(self, queues: Queues, memory: KVMemory) -> StepRecord | None:
        """Complete the record and write it."""
        record = self._turn.record
        if self._next_page is not None and not self._next_page.record.events:
            self._take_back(self._next_page.record)
        record.waiting = [req.rid for req in queues.waiting]
        record.compiling = list(queues.compiling)
        record.running = [req.rid for req in queues.in_memory]
        record.kv = memory.usage()
        if self._with_tree:
            record.tree = memory.cache.snapshot()
        if self._file is not None:
            self._write(self._file, json.dumps(record.as_dict(), ensure_ascii=False))
        return record

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what could not be written was said when it was to be written
                self._file.close()

    def _write(self, file: TextIO, line: str) -> None:
        """Write a line. A trace that cannot be written any more is given up; the requests can go on."""
        try:
            file.write(line + "\n")
            file.flush()
        except OSError as error:
            self._file = None
            raise ConfigError(f"cannot write the trace any further: {error.strerror}", where=file.name,
                              fix="make room, or name another file") from error

    def _top(self, probs: Tensor) -> list[Candidate]:
        values, ids = probs.topk(min(TOP_CANDIDATES, probs.numel()))
        return [Candidate(token_id, self._vocabulary.shown(token_id), _short(prob))
                for prob, token_id in zip(values.tolist(), ids.tolist(), strict=True) if prob > 0]


def _short(prob: float) -> float:
    """Six significant digits: enough for a person, and small probabilities do not become zero."""
    return float(f"{prob:.6g}")


def _open(path: Path) -> TextIO:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write the trace: {error.strerror}", where=str(path),
                          fix="name a file in a folder you can write to") from error
