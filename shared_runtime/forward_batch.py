"""What one forward pass is given: flat token tensors, and who they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torch import Tensor


class ForwardMode(Enum):
    """EXTEND feeds a stretch of a request's tokens (prefill, chunk, re-admission); DECODE feeds the newest."""

    EXTEND = "extend"
    DECODE = "decode"


@dataclass(slots=True)
class ForwardBatch:
    """One pass over B requests, T tokens in all, R of which need logits.

    Filled by `ScheduleBatch`; read by `ModelRunner`, the model and its attention. Tokens lie request after
    request, in order.

    Attributes:
        mode: what kind of pass this is.
        input_ids: [T] int64.
        positions: [T] int64, the position of each token in its own request.
        out_slots: [T] int64, the KV slot that each token's key and value are written to.
        table_rows: [B] int64, each request's row of `ReqToTokenPool.table`.
        seq_lens: B ints, tokens a request has in the KV pool after this pass.
        extend_lens: B ints, tokens of it that this pass feeds; sums to T.
        logits_index: [R] int64, which of the T tokens need logits.
    """

    mode: ForwardMode
    input_ids: Tensor
    positions: Tensor
    out_slots: Tensor
    table_rows: Tensor
    seq_lens: list[int]
    extend_lens: list[int]
    logits_index: Tensor
