"""The gate: may the next pass be launched before the results of the one before are processed?

One rule in one function, asked by every loop with overlap. Upstream had a loop that lacked it (museum row 64); its rule
(`need_grammar_sync`, #13425, since #27977 for every kind of speculation) is the reason `speculation` here: speculation,
a grammar, a decode batch and a result that waits. The other reasons are ours, and each says what must be known first.
Nothing in it depends on time, so tensor-parallel ranks find the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared_runtime.forward_batch import ForwardMode
from shared_runtime.policy import OverlapScheme, StageOptions
from shared_runtime.request import Request
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.trace import FORCED_TEXT, GateReason


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pass that might be launched ahead.

    Attributes:
        mode: EXTEND or DECODE. reqs: who would be in it; of an EXTEND it is not known yet.
        room: slots that can be had now.
    """

    mode: ForwardMode
    reqs: Sequence[Request] = ()
    room: int = 0


def gate_reason(candidate: Candidate, pending: ScheduleBatch | None, options: StageOptions,
                scheme: OverlapScheme) -> GateReason | None:
    """Why `candidate` must wait until the results of `pending` are processed; None when it need not.

    Args:
        candidate: what would be launched. pending: the pass before; None when all results are in.
        options, scheme: of the engine.

    Returns:
        A reason that `GateReason` explains.
    """
    if pending is None:
        return None
    decode = candidate.mode is ForwardMode.DECODE
    grammar = any(req.has_grammar for req in candidate.reqs)
    drafts = options.spec != "none"
    if decode and grammar and drafts:
        return "speculation"
    if decode and grammar and options.forces_text:
        return FORCED_TEXT
    if (decode and drafts) or any(row.draft for row in pending.rows):
        return "drafts"
    if scheme == "event" and pending.mode is ForwardMode.EXTEND:
        return "prefill"
    if decode and candidate.room < len(candidate.reqs):
        return "memory"
    return None
