"""Fills a `StepRecord` while a turn of the loop goes by; `NullTracer` does nothing and creates nothing."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

import torch
from torch import Tensor

from shared_runtime.errors import ConfigError
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.trace import Candidate, Event, RequestRecord, RewriteRecord, StepRecord, TokenRecord
from shared_runtime.vocabulary import Vocabulary

if TYPE_CHECKING:
    from shared_runtime.kv_memory import KVMemory
    from shared_runtime.queues import Queues
    from shared_runtime.request import Request
    from shared_runtime.schedule_batch import ScheduleBatch

TOP_CANDIDATES = 8

Describe = Callable[["Request"], dict[str, object]]
Moved = Literal["retracted", "requeued", "ended"]


class Tracer(Protocol):
    """What the scheduler tells of a turn, in the order it happens."""

    @property
    def wants_logits(self) -> bool:
        """True when `masked` needs the raw logits too (the scheduler then keeps a copy)."""
        ...

    def begin(self) -> None:
        """A turn begins."""
        ...

    def phase(self, name: str) -> None:
        """The step of the loop called `name` has just ended."""
        ...

    def event(self, name: Literal["launch", "results_processed", "mask_ready", "sampled"]) -> None:
        """A point in the order of events."""
        ...

    def moved(self, req: Request, how: Moved, note: RewriteRecord | None = None) -> None:
        """A request was retracted, taken out of the batch (and what was done to it), or has ended."""
        ...

    def scheduled(self, batch: ScheduleBatch) -> None:
        """The batch of this turn, before its pass."""
        ...

    def masked(self, batch: ScheduleBatch, raw: Tensor | None, logits: Tensor, filled: Sequence[int]) -> None:
        """Sampled logits [rows, width] before and after the mask, and the rows a grammar filled."""
        ...

    def emitted(self, req: Request, token_ids: Sequence[int]) -> None:
        """The tokens that a request got; called when they are in its output."""
        ...

    def verified(self, req: Request, draft: Sequence[int], accepted: int) -> None:
        """A draft was verified: its first `accepted` tokens were taken."""
        ...

    def synced(self) -> None:
        """The ranks have agreed on the sampled ids."""
        ...

    def end(self, queues: Queues, memory: KVMemory) -> StepRecord | None:
        """The turn is over; returns its record, None when there is no trace."""
        ...

    def close(self) -> None:
        """No more turns will come."""
        ...


class NullTracer:
    """No trace: no record object is created."""

    wants_logits = False

    def begin(self) -> None:
        """Do nothing."""

    def phase(self, name: str) -> None:
        """Do nothing."""

    def event(self, name: Literal["launch", "results_processed", "mask_ready", "sampled"]) -> None:
        """Do nothing."""

    def moved(self, req: Request, how: Moved, note: RewriteRecord | None = None) -> None:
        """Do nothing."""

    def scheduled(self, batch: ScheduleBatch) -> None:
        """Do nothing."""

    def masked(self, batch: ScheduleBatch, raw: Tensor | None, logits: Tensor, filled: Sequence[int]) -> None:
        """Do nothing."""

    def emitted(self, req: Request, token_ids: Sequence[int]) -> None:
        """Do nothing."""

    def verified(self, req: Request, draft: Sequence[int], accepted: int) -> None:
        """Do nothing."""

    def synced(self) -> None:
        """Do nothing."""

    def end(self, queues: Queues, memory: KVMemory) -> StepRecord | None:
        """Do nothing; there is no record."""
        return None

    def close(self) -> None:
        """Do nothing."""


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
        self._record = StepRecord(step=0)
        self._by_rid: dict[str, RequestRecord] = {}
        self._early: dict[str, list[TokenRecord]] = {}
        self._notes: dict[str, RewriteRecord] = {}
        self._last = 0.0

    def begin(self) -> None:
        """Open the record of the next turn."""
        self._record = StepRecord(step=self._turns)
        self._by_rid = {}
        self._turns += 1
        self._last = time.perf_counter()

    def phase(self, name: str) -> None:
        """Book the time since the phase before."""
        now = time.perf_counter()
        self._record.ms[name] = self._record.ms.get(name, 0.0) + (now - self._last) * 1e3
        self._last = now

    def event(self, name: Literal["launch", "results_processed", "mask_ready", "sampled"]) -> None:
        """Number and keep the event."""
        self._record.events.append(Event(self._events, name, self._record.step))
        self._events += 1

    def moved(self, req: Request, how: Moved, note: RewriteRecord | None = None) -> None:
        """Note the request under what happened to it; show how it ended, or what was done to it."""
        {"retracted": self._record.retracted, "requeued": self._record.requeued,
         "ended": self._record.ended}[how].append(req.rid)
        if req.finish is not None and req.rid in self._by_rid:
            self._by_rid[req.rid].finish = req.finish.kind
        if note is not None:
            self._notes[req.rid] = note

    def scheduled(self, batch: ScheduleBatch) -> None:
        """One `RequestRecord` a row."""
        mode: Literal["extend", "decode"] = "extend" if batch.mode is ForwardMode.EXTEND else "decode"
        self._record.mode = mode
        for row in batch.rows:
            record = RequestRecord(
                rid=row.req.rid, mode=mode, fed=list(row.ids), kv_len=row.end, slots=row.slots.tolist(),
                prefix_hit=row.start if mode == "extend" else 0, sampled=row.samples,
                state_before=self._describe(row.req))
            record.explain(self._notes.pop(row.req.rid, None))
            record.tokens = self._early.pop(row.req.rid, [])
            self._by_rid[row.req.rid] = record
            self._record.requests.append(record)

    def masked(self, batch: ScheduleBatch, raw: Tensor | None, logits: Tensor, filled: Sequence[int]) -> None:
        """Distributions before and after the mask, for the sampled rows."""
        self._record.has_grammar = batch.has_grammar
        self._record.grammars_filled = list(filled)
        if raw is None:
            return
        before = torch.softmax(raw, dim=-1)
        allowed = torch.isfinite(logits)
        for index, req in enumerate(batch.sampled):
            if batch.ahead and batch.ahead[index]:
                continue  # behind a draft; the record shows the position that is sure to be reached
            record = self._by_rid[req.rid]
            record.n_allowed = int(allowed[index].sum())
            record.allowed_mass = _short(min(1.0, float(before[index][allowed[index]].sum(dtype=torch.float64))))
            record.top_raw = self._top(before[index])
            if record.n_allowed:
                record.top_masked = self._top(torch.softmax(logits[index], dim=-1))

    def emitted(self, req: Request, token_ids: Sequence[int]) -> None:
        """Show the tokens with their origins, and the grammar's state behind them."""
        origins = req.origins[len(req.origins) - len(token_ids):]
        shown = [TokenRecord(token_id, self._text(token_id), origin)
                 for token_id, origin in zip(token_ids, origins, strict=True)]
        if req.rid in self._by_rid:
            record = self._by_rid[req.rid]
            record.tokens += shown
            record.state_after = self._describe(req)
        else:  # forced tokens, appended before the pass that reads them
            self._early[req.rid] = shown

    def verified(self, req: Request, draft: Sequence[int], accepted: int) -> None:
        """Show the draft, and count it."""
        self._by_rid[req.rid].draft = [
            TokenRecord(token_id, self._text(token_id), "draft_accepted" if index < accepted else "draft_rejected")
            for index, token_id in enumerate(draft)]
        self._record.spec.drafted += len(draft)
        self._record.spec.accepted += accepted

    def synced(self) -> None:
        """Note it."""
        self._record.tp_token_sync = True

    def end(self, queues: Queues, memory: KVMemory) -> StepRecord | None:
        """Complete the record and write it."""
        record = self._record
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
        return [Candidate(token_id, self._text(token_id), _short(prob))
                for prob, token_id in zip(values.tolist(), ids.tolist(), strict=True) if prob > 0]

    def _text(self, token_id: int) -> str:
        """A token as text: half characters as escapes, so that no two tokens look the same for that reason."""
        if token_id >= len(self._vocabulary):
            return f"<pad {token_id}>"
        if token_id in self._vocabulary.control_ids:
            return f"<control {token_id}>"
        return self._vocabulary.token_bytes[token_id].decode("utf-8", "backslashreplace")


def _short(prob: float) -> float:
    """Six significant digits: enough for a person, and small probabilities do not become zero."""
    return float(f"{prob:.6g}")


def _open(path: Path) -> TextIO:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write the trace: {error.strerror}", where=str(path),
                          fix="name a file in a folder you can write to") from error
