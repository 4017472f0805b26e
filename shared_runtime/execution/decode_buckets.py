"""The few shapes that decode passes are padded to, so that a recorded one can be played again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from shared_runtime.attention import AttentionPiece, LayerAttention, PassAttention
from shared_runtime.forward_batch import ForwardBatch, ForwardMode
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool

_SCRATCH_SLOT = 0  # of the pool: see `TokenToKVPool`
_SHORTEST = 128


@dataclass(frozen=True, slots=True)
class Bucket:
    """A padded shape: `rows` requests of one new token each, over at most `length` tokens in memory."""

    rows: int
    length: int


def row_counts(most: int) -> list[int]:
    """1, 2, 4, 8, then every 8, and `most` itself: what a batch of up to `most` rows is padded to."""
    return sorted({one for one in (1, 2, 4, *range(8, most, 8)) if one < most} | {most})


def lengths(most: int) -> list[int]:
    """128 and its doublings, and `most` itself."""
    found = [most]
    while (shorter := _SHORTEST << len(found) - 1) < most:
        found.append(shorter)
    return sorted(found)


def bucket_of(batch: ForwardBatch, rows: Sequence[int], longest: Sequence[int]) -> Bucket | None:
    """The smallest bucket that a pass fits into; None where it is no plain decode, or is larger than any.

    Whether a request has a grammar is not asked, and cannot be: a pass knows nothing of it. (Upstream's #1201 to #1392
    had sampling inside the recording; a batch with a mask then took another way through the model: museum row 27.)

    Args:
        batch: the pass. rows, longest: the sizes there are, ascending.
    """
    n_rows = len(batch.seq_lens)
    plain = (batch.mode is ForwardMode.DECODE and all(n == 1 for n in batch.extend_lens)
             and batch.logits_index.numel() == n_rows)
    fitting_rows = next((one for one in rows if one >= n_rows), None)
    fitting_length = next((one for one in longest if one >= max(batch.seq_lens)), None)
    if not plain or fitting_rows is None or fitting_length is None:
        return None
    return Bucket(fitting_rows, fitting_length)


class StaticBatch:
    """The inputs of decode passes, always at the same place in memory: a recording reads them there.

    A row that pads feeds token 0 at position 0 into the scratch slot, and reads that slot alone. So it computes
    something finite, and touches nobody.

    Attributes:
        input_ids, positions, out_slots, table_rows, logits_index: as in `ForwardBatch`, each [most rows].
    """

    def __init__(self, most_rows: int, device: torch.device) -> None:
        self.input_ids = torch.zeros(most_rows, dtype=torch.int64, device=device)
        self.positions = torch.zeros_like(self.input_ids)
        self.out_slots = torch.full_like(self.input_ids, _SCRATCH_SLOT)
        self.table_rows = torch.zeros_like(self.input_ids)
        self.logits_index = torch.arange(most_rows, dtype=torch.int64, device=device)

    def fill(self, batch: ForwardBatch, rows: int) -> None:
        """Copy the pass in, and make padding of the rows up to `rows` behind it."""
        n_rows = len(batch.seq_lens)
        for own, given in ((self.input_ids, batch.input_ids), (self.positions, batch.positions),
                           (self.out_slots, batch.out_slots), (self.table_rows, batch.table_rows)):
            own[:n_rows].copy_(given)
            own[n_rows:rows].zero_()

    def forward_batch(self, bucket: Bucket) -> ForwardBatch:
        """The pass of a bucket, over these tensors."""
        rows = slice(0, bucket.rows)
        return ForwardBatch(
            mode=ForwardMode.DECODE, input_ids=self.input_ids[rows], positions=self.positions[rows],
            out_slots=self.out_slots[rows], table_rows=self.table_rows[rows], seq_lens=[bucket.length] * bucket.rows,
            extend_lens=[1] * bucket.rows, logits_index=self.logits_index[rows])


class StaticAttention(Protocol):
    """Attention of a recorded pass, in two parts: what the host does before each play, and what is recorded."""

    def prepare(self, batch: ForwardBatch, bucket: Bucket) -> None:
        """Before each play, outside the recording: what the host has to work out from the lengths of this pass."""
        ...

    def of(self, static: StaticBatch, bucket: Bucket) -> LayerAttention:
        """Inside the recording: attention of the bucket's pass, from tensors that stay where they are."""
        ...


class GatheredAttention:
    """By torch's own kernel: every row over `length` places, those behind its position hidden. The host does nothing.

    Args:
        pool, tables: the memory. dtype: of the queries.
    """

    def __init__(self, pool: TokenToKVPool, tables: ReqToTokenPool, dtype: torch.dtype) -> None:
        self._pool = pool
        self._tables = tables
        self._dtype = dtype

    def prepare(self, batch: ForwardBatch, bucket: Bucket) -> None:
        """Nothing: what each row reads is worked out on the device."""

    def of(self, static: StaticBatch, bucket: Bucket) -> LayerAttention:
        """One piece of fixed size."""
        rows = slice(0, bucket.rows)
        place = torch.arange(bucket.length, device=static.positions.device)
        hidden = place > static.positions[rows, None]
        pads = static.out_slots[rows, None] == _SCRATCH_SLOT
        slots = self._tables.table[static.table_rows[rows], :bucket.length].masked_fill(hidden | pads, _SCRATCH_SLOT)
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=place.device).masked_fill_(hidden, float("-inf"))
        piece = AttentionPiece(rows, bucket.rows, slots, mask[:, None, None, :])
        return PassAttention(self._pool, static.out_slots[rows], [piece])
