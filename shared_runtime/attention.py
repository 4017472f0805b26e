"""Attention over the paged KV pool: which slots each query reads, worked out once a pass for all layers.

A pass is cut into pieces, each one call of `scaled_dot_product_attention`. The modes differ in the cut alone:

* fast: requests that feed equally few tokens share a piece, padded to the longest of them, which is at most twice as
  long as the shortest; any other request is a piece.
* exact: each query token is a row of its own, and its keys are padded to a multiple of 64. What it is added
  to, and in which order, then depends on its own position alone. Rows share a call only where they have the
  same padded length: the kernel treats rows alike whatever their number, which
  `tests/unit/test_exact_mode.py` holds it to.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool
from shared_runtime.transfer import to_device

KV_TILE = 64
_SCRATCH_SLOT = 0
_FEW = 32
"""New tokens up to which requests share a piece: a stretch longer than that fills a call by itself."""


@dataclass(frozen=True, slots=True)
class AttentionPiece:
    """B rows of q_len query tokens each, which read L slots.

    Attributes:
        tokens: the B * q_len query tokens' places in the pass, row after row: a stretch, or [B * q_len]
            int64.
        n_rows: B.
        slots: [B, L] int64, or [1, L] when all rows read the same ones; a stretch of L slots that lie side by side and
            all rows read, which need not be gathered.
        mask: added to the scores, broadcast to [B, 1, q_len, L]; None when every query sees every slot.
    """

    tokens: slice | Tensor
    n_rows: int
    slots: Tensor | slice
    mask: Tensor | None


class AttentionPlanner(Protocol):
    """Cuts a pass into pieces."""

    def pieces(self, batch: ForwardBatch, dtype: torch.dtype) -> list[AttentionPiece]:
        """The pieces of `batch`; together they hold each of its tokens once. `dtype` is the queries'."""
        ...


class LayerAttention(Protocol):
    """Attention of one pass, layer by layer: what the model is given."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As `PassAttention.attend`."""
        ...


class PagedAttention:
    """Grouped-query attention of one pass after another over one pool, by torch's own kernels."""

    def __init__(self, *, kv_pool: TokenToKVPool, req_to_token: ReqToTokenPool, exact: bool) -> None:
        self._pool = kv_pool
        self._planner: AttentionPlanner = (
            ExactPlanner(req_to_token) if exact else FastPlanner(req_to_token))

    def plan(self, batch: ForwardBatch, dtype: torch.dtype) -> PassAttention:
        """What every layer of this pass needs; `dtype` is the queries'."""
        return PassAttention(self._pool, batch.out_slots, self._planner.pieces(batch, dtype))


@dataclass(frozen=True, slots=True)
class PassAttention:
    """Attention of one pass, layer by layer."""

    pool: TokenToKVPool
    out_slots: Tensor
    pieces: list[AttentionPiece]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store the new keys and values, and let the queries read.

        Args:
            layer: layer index.
            q: [T, n_heads, head_dim].
            k: [T, n_kv_heads, head_dim].
            v: as `k`.

        Returns:
            [T, n_heads * head_dim].
        """
        self.pool.write(layer, self.out_slots, k, v)
        keys, values = self.pool.k[layer], self.pool.v[layer]
        if len(self.pieces) == 1 and isinstance(self.pieces[0].tokens, slice):
            return _attend_piece(self.pieces[0], q, keys, values)
        out = q.new_empty((q.shape[0], q.shape[1] * q.shape[2]))
        for piece in self.pieces:
            out[piece.tokens] = _attend_piece(piece, q[piece.tokens], keys, values)
        return out


def _attend_piece(piece: AttentionPiece, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """q [B * q_len, n_heads, head_dim] -> [B * q_len, n_heads * head_dim]."""
    n_tokens, n_heads, head_dim = q.shape
    n_rows, n_kv_heads = piece.n_rows, keys.shape[1]
    q_len, group = n_tokens // n_rows, n_heads // n_kv_heads
    k, v = _gather(keys, piece), _gather(values, piece)
    if q_len == 1:
        # The query heads that share a key head stand as its queries, so that the keys need not be repeated.
        q = q.view(n_rows, n_kv_heads, group, head_dim)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=piece.mask).reshape(n_tokens, -1)
    q = q.view(n_rows, q_len, n_heads, head_dim).transpose(1, 2)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=piece.mask, is_causal=piece.mask is None,
                                         enable_gqa=group > 1)
    return out.transpose(1, 2).reshape(n_tokens, -1)


def _gather(pool: Tensor, piece: AttentionPiece) -> Tensor:
    """The piece's slots out of one layer's keys or values, [B, n_kv_heads, L, head_dim]."""
    if isinstance(piece.slots, slice):
        return pool[piece.slots].transpose(0, 1).expand(piece.n_rows, -1, -1, -1)
    # As an embedding look-up this is four times faster on a CPU than as pool[slots].
    rows = F.embedding(piece.slots, pool.view(pool.shape[0], -1))
    return rows.view(*rows.shape[:2], *pool.shape[1:]).transpose(1, 2).expand(piece.n_rows, -1, -1, -1)


class FastPlanner:
    """As few and as large pieces as the shapes allow without much padding."""

    def __init__(self, req_to_token: ReqToTokenPool) -> None:
        self._table = req_to_token.table

    def pieces(self, batch: ForwardBatch, dtype: torch.dtype) -> list[AttentionPiece]:
        """Requests with equally few new tokens and of much the same length together, any other alone."""
        by_count: defaultdict[int, list[_Row]] = defaultdict(list)
        start = 0
        for index, (n_kv, n_new) in enumerate(zip(batch.seq_lens, batch.extend_lens, strict=True)):
            by_count[n_new].append(_Row(index, start, n_kv))
            start += n_new
        pieces: list[AttentionPiece] = []
        for n_new, rows in by_count.items():
            groups = _much_alike(rows) if n_new <= _FEW else [[row] for row in rows]
            for group in groups:
                if len(group) == 1:
                    pieces.append(self._alone(batch, group[0], n_new, dtype))
                else:
                    pieces.append(self._together(batch, group, n_new, dtype))
        return pieces

    def _alone(self, batch: ForwardBatch, row: _Row, n_new: int, dtype: torch.dtype) -> AttentionPiece:
        slots = self._table[batch.table_rows[row.index], :row.n_kv]
        tokens = slice(row.start, row.start + n_new)
        mask = None
        if 1 < n_new < row.n_kv:  # a stretch behind a prefix; is_causal would align it to the first key
            mask = _visible(batch.positions[tokens], row.n_kv, dtype)
        return AttentionPiece(tokens, 1, _stretch(slots) or slots.unsqueeze(0), mask)

    def _together(self, batch: ForwardBatch, rows: list[_Row], n_new: int, dtype: torch.dtype) -> AttentionPiece:
        device = batch.positions.device
        longest = max(row.n_kv for row in rows)
        tokens: slice | Tensor = slice(rows[0].start, rows[0].start + len(rows) * n_new)
        table_rows = batch.table_rows[rows[0].index : rows[0].index + len(rows)]
        if any(row.index != rows[0].index + place for place, row in enumerate(rows)):
            tokens = to_device([row.start + place for row in rows for place in range(n_new)], device)
            table_rows = batch.table_rows[to_device([row.index for row in rows], device)]
        slots = self._table[table_rows, :longest]
        if n_new == 1 and all(row.n_kv == longest for row in rows):
            return AttentionPiece(tokens, len(rows), slots, None)
        positions = batch.positions[tokens]
        last = positions.view(len(rows), n_new)[:, -1:]
        slots = slots.masked_fill(torch.arange(longest, device=device) > last, _SCRATCH_SLOT)
        mask = _visible(positions, longest, dtype).view(len(rows), 1, n_new, longest)
        return AttentionPiece(tokens, len(rows), slots, mask)


@dataclass(frozen=True, slots=True)
class _Row:
    """A request of a pass: its place among them, its first token's place among the tokens, its keys."""

    index: int
    start: int
    n_kv: int


def _much_alike(rows: list[_Row]) -> list[list[_Row]]:
    """Groups in which the longest is less than twice as long as the shortest, each in the order of the pass."""
    groups: list[list[_Row]] = []
    longest = 0
    for row in sorted(rows, key=lambda row: -row.n_kv):
        if 2 * row.n_kv <= longest or not groups:
            groups.append([])
            longest = row.n_kv
        groups[-1].append(row)
    return [sorted(group, key=lambda row: row.index) for group in groups]


def _stretch(slots: Tensor) -> slice | None:
    """Slots [L] as a stretch when they ascend by one; None otherwise, and where looking would stall the device."""
    if slots.device.type != "cpu" or not bool((slots[1:] - slots[:-1] == 1).all()):
        return None
    first = int(slots[0])
    return slice(first, first + slots.shape[0])


class ExactPlanner:
    """Every token a row of its own, with its keys padded to a multiple of 64."""

    def __init__(self, req_to_token: ReqToTokenPool) -> None:
        self._table = req_to_token.table

    def pieces(self, batch: ForwardBatch, dtype: torch.dtype) -> list[AttentionPiece]:
        """Tokens of one request with one padded length share a piece; so do lone tokens of several."""
        pieces: list[AttentionPiece] = []
        lone: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        start = 0
        for i, (n_kv, n_new) in enumerate(zip(batch.seq_lens, batch.extend_lens, strict=True)):
            for tokens, padded in _stretches(start, first=n_kv - n_new, count=n_new):
                if tokens.stop - tokens.start == 1:
                    lone[padded].append((tokens.start, i))
                    continue
                positions = batch.positions[tokens]
                slots = self._padded_slots(batch.table_rows[i : i + 1], positions[-1:], padded)
                mask = _visible(positions[:, None], padded, dtype).transpose(0, 2)
                pieces.append(AttentionPiece(tokens, positions.shape[0], slots, mask))
            start += n_new
        pieces.extend(self._lone_piece(batch, padded, found, dtype) for padded, found in lone.items())
        return pieces

    def _lone_piece(self, batch: ForwardBatch, padded: int, found: list[tuple[int, int]],
                    dtype: torch.dtype) -> AttentionPiece:
        device = batch.positions.device
        tokens = to_device([token for token, _ in found], device)
        rows = batch.table_rows[to_device([request for _, request in found], device)]
        positions = batch.positions[tokens]
        mask = _visible(positions[:, None], padded, dtype).transpose(0, 2)
        return AttentionPiece(tokens, len(found), self._padded_slots(rows, positions, padded), mask)

    def _padded_slots(self, rows: Tensor, last: Tensor, padded: int) -> Tensor:
        """[B, padded] slots of table rows `rows` [B] up to position `last` [B], scratch behind it."""
        slots = self._table[rows, :padded]
        slots = F.pad(slots, (0, padded - slots.shape[1]), value=_SCRATCH_SLOT)
        return slots.masked_fill(torch.arange(padded, device=slots.device) > last[:, None], _SCRATCH_SLOT)


def _stretches(start: int, *, first: int, count: int) -> list[tuple[slice, int]]:
    """Cut a request's tokens where the padded length changes.

    Args:
        start: place of its first token in the pass.
        first: that token's position.
        count: its tokens in the pass.

    Returns:
        Stretches of places in the pass, each with the padded length of all its tokens.
    """
    found: list[tuple[slice, int]] = []
    position = first
    while position < first + count:
        padded = (position // KV_TILE + 1) * KV_TILE
        end = min(padded, first + count)
        found.append((slice(start + position - first, start + end - first), padded))
        position = end
    return found


def _visible(positions: Tensor, n_kv: int, dtype: torch.dtype) -> Tensor:
    """A mask to add to scores: 0 where key j <= position, -inf behind it.

    Args:
        positions: [q_len], or [B, 1] for one query a row.
        n_kv: keys.

    Returns:
        [1, 1, q_len, n_kv], or [1, 1, B, n_kv] (to be turned into [B, 1, 1, n_kv] by the caller).
    """
    hidden = torch.arange(n_kv, device=positions.device) > positions.reshape(-1, 1)
    mask = torch.zeros(hidden.shape, dtype=dtype, device=positions.device).masked_fill_(hidden, float("-inf"))
    return mask[None, None]
