"""The requests of one turn, as the scheduler and the policy see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shared_runtime.forward_batch import ForwardBatch, ForwardMode
from shared_runtime.request import FinishReason, Request
from shared_runtime.transfer import to_device


@dataclass(slots=True, eq=False)
class BatchRow:
    """One request's part of a pass: it feeds `ids`, whose first stands at position `start` of the request.

    Attributes:
        slots: [len(ids)] int64, where the new keys and values go.
        draft: how many of the last ids are drafts, to be verified by this pass.
        samples: False for a middle chunk of a prompt, whose last logits mean nothing yet (upstream's #1703
            advanced the grammar there).
        scores_from: first fed position whose logits are wanted although they choose no token: the tokens behind
            it stand there already (a prompt under `prompt_logprobs`, or output that a stage wrote itself). None
            when only the last position matters.
        wasted: the request has left memory while the pass was on its way: it has ended, or was retracted. Nothing
            that comes out for it counts.

    Until the pass is done its slots belong to the row; then they become the request's, or go back.
    """

    req: Request
    start: int
    ids: list[int]
    slots: Tensor
    samples: bool = True
    scores_from: int | None = None
    draft: int = 0
    wasted: bool = False

    @property
    def end(self) -> int:
        """Tokens the request has in the KV pool after this pass."""
        return self.start + len(self.ids)

    @property
    def ending(self) -> FinishReason | None:
        """Why this pass is the request's last; None while it goes on."""
        if self.req.ending is not None and self.end == self.req.total_len:
            return self.req.ending
        return self.req.finish


@dataclass(slots=True)
class ScoredRows:
    """Logits rows `first..last` (exclusive) of a pass score the request's tokens from `position` on."""

    req: Request
    first: int
    last: int
    position: int


@dataclass(slots=True)
class ScheduleBatch:
    """The rows of one pass, in order.

    Attributes:
        mode: EXTEND or DECODE.
        rows: one a request; owned by the scheduler.
        sampled: whom each row of the sampled logits belongs to. A request has one row, and one more for each
            draft; they stand together.
        ahead: per sampled row, the drafted tokens in front of it; () for a request's first.
        sample_index: per sampled row, its row of the logits that the model returns.
        scored_rows: which logits rows score tokens that stand already.
    """

    mode: ForwardMode
    rows: list[BatchRow]
    sampled: list[Request] = field(default_factory=list)
    ahead: list[tuple[int, ...]] = field(default_factory=list)
    sample_index: list[int] = field(default_factory=list)
    scored_rows: list[ScoredRows] = field(default_factory=list)

    @classmethod
    def about_to_decode(cls, reqs: Sequence[Request]) -> ScheduleBatch:
        """The decode batch that `reqs` would make, before any slot is taken for it."""
        none = torch.empty(0, dtype=torch.int64)
        return cls(ForwardMode.DECODE, [BatchRow(req, req.kv_len, req.all_ids[req.kv_len:], none) for req in reqs])

    @property
    def reqs(self) -> list[Request]:
        """The requests, in row order."""
        return [row.req for row in self.rows]

    @property
    def has_grammar(self) -> bool:
        """True when a sampled request is constrained."""
        return any(req.has_grammar for req in self.sampled)

    @property
    def positions(self) -> list[int]:
        """Per sampled row, the index of the output token that its logits decide."""
        if not self.ahead:
            return [len(req.output_ids) for req in self.sampled]
        return [len(req.output_ids) + len(ahead) for req, ahead in zip(self.sampled, self.ahead, strict=True)]

    def forward_batch(self, device: torch.device) -> ForwardBatch:
        """The tensors of the pass; fills `sampled`, `sample_index` and `scored_rows`."""
        input_ids: list[int] = []
        positions: list[int] = []
        logits_index: list[int] = []
        self.sampled, self.ahead, self.sample_index, self.scored_rows = [], [], [], []
        for row in self.rows:
            offset = len(input_ids)
            input_ids += row.ids
            positions += range(row.start, row.end)
            wanted = self._logits_positions(row)
            if row.scores_from is not None:
                self._note_scored_rows(row, wanted, first=len(logits_index))
            logits_index += [offset + position - row.start for position in wanted]
            if row.samples:
                drafts = tuple(row.ids[len(row.ids) - row.draft:])
                for count in range(row.draft + 1):
                    self.sampled.append(row.req)
                    self.ahead.append(drafts[:count])
                    self.sample_index.append(len(logits_index) - 1 - row.draft + count)
        return ForwardBatch(
            mode=self.mode,
            input_ids=to_device(input_ids, device),
            positions=to_device(positions, device),
            out_slots=torch.cat([row.slots for row in self.rows]),
            table_rows=to_device([_table_row(row.req) for row in self.rows], device),
            seq_lens=[row.end for row in self.rows],
            extend_lens=[len(row.ids) for row in self.rows],
            logits_index=to_device(logits_index, device),
        )

    def drop_wasted_rows(self) -> None:
        """Sample nothing for requests that have left memory since the pass was launched; the pass itself goes on."""
        gone = [row.req for row in self.rows if row.wasted]
        for row in self.rows:
            row.samples = row.samples and not row.wasted
        kept = [index for index, req in enumerate(self.sampled) if req not in gone]
        self.sampled = [self.sampled[index] for index in kept]
        self.ahead = [self.ahead[index] for index in kept]
        self.sample_index = [self.sample_index[index] for index in kept]

    def sampled_logits(self, logits: Tensor) -> Tensor:
        """[len(sampled), width]: the rows to sample from; the logits themselves when those are all of them."""
        if len(self.sample_index) == logits.shape[0]:
            return logits
        return logits[to_device(self.sample_index, logits.device)]

    @staticmethod
    def _logits_positions(row: BatchRow) -> Sequence[int]:
        first = row.end - 1 - row.draft if row.samples else row.end
        if row.scores_from is not None:
            first = min(first, row.scores_from)
        return range(max(row.start, first), row.end)

    def _note_scored_rows(self, row: BatchRow, wanted: Sequence[int], first: int) -> None:
        """Position p's logits score the token at p + 1, as long as one stands there."""
        scored = min(len(wanted), row.req.total_len - 1 - wanted[0]) if wanted else 0
        if scored > 0:
            self.scored_rows.append(ScoredRows(row.req, first, first + scored, position=wanted[0] + 1))


def _table_row(req: Request) -> int:
    if req.table_row is None:
        raise ValueError(f"request {req.rid} is in a batch without a table row")
    return req.table_row
