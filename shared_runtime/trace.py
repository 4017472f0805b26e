"""One record a turn: everything a person could want to see, as JSON values.

The stepper, the player, the terminal and the benchmark counters all read this one record; its JSON Schema is
`trace.schema.json` beside this file. Ids, counts and reasons are exact; probabilities have 6 significant digits;
times are milliseconds and are never compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

TRACE_SCHEMA = "jumpforward.trace/1"

TokenOrigin = Literal["sampled", "jumped", "forced", "draft_accepted", "draft_rejected"]

EventName = Literal["launch", "results_processed", "mask_ready", "sampled"]

GateReason = Literal["speculation", "backend_jump", "drafts", "prefill", "memory", "nothing_to_run"]
"""Why a pass waited for the results before it (`execution/gate.py` has the rule):

`speculation`: a draft is verified under the grammar, which must have accepted the tokens before it.
`backend_jump`: forced text is known once they are accepted, and must be fed with the next pass.
`drafts`: they are looked up in the output, which must hold those tokens; or the pass before verifies some, and how many
of them stay is its result.
`prefill`: the pass before, which is still being computed, fills memory that others could share.
`memory`: somebody must be retracted, and who depends on who has ended.
`nothing_to_run`: all that run are sure to end.
"""

FORCED_TEXT: GateReason = "backend_jump"
"""The reason for those who may not say the word."""

PHASES = ("intake", "ready", "requeue", "schedule", "forward", "constrain", "sample", "accept", "finish")
"""The nine steps of the loop, in order; keys of `StepRecord.ms`."""


@dataclass(slots=True)
class Candidate:
    """A token among the best of a distribution: its id, its text and its probability."""

    id: int
    text: str
    prob: float


@dataclass(slots=True)
class TokenRecord:
    """A token that came out: its id, its text and how it came."""

    id: int
    text: str
    origin: TokenOrigin


@dataclass(slots=True)
class RewriteRecord:
    """A stretch of text that was not sampled but written by a stage, and what retokenizing did to the ids.

    Attributes:
        text: the forced text. old_ids, new_ids: the output before and after.
        common_prefix: leading ids that stayed, whose keys and values can be reused.
    """

    text: str
    old_ids: list[int]
    new_ids: list[int]
    common_prefix: int


@dataclass(slots=True)
class RequestRecord:
    """One request's part of a turn.

    Attributes:
        rid: the request. mode: `extend` or `decode`. fed: token ids that this pass read.
        prefix_hit: tokens whose keys and values were found in the cache at admission to this pass (0 in decode).
        kv_len: tokens in the KV pool after the pass. slots: the slots written by this pass.
        sampled: False for a middle chunk of a prompt, and for a wasted row: the request had ended, or was retracted,
            while the pass was on its way.
        state_before, state_after: the grammar as the stage describes it; {} without one.
        n_allowed: tokens left by the mask. allowed_mass: their probability before masking: how little the mask
            had to push (1 for a free row).
        top_raw, top_masked: best candidates before and after the mask.
        tokens: what came out. draft: what was offered for verification, each accepted or rejected.
        finish: the finish reason's kind, None while it runs.
        jump: what a stage wrote into the output before this pass, without sampling it.
    """

    rid: str
    mode: Literal["extend", "decode"]
    fed: list[int]
    prefix_hit: int
    kv_len: int
    slots: list[int]
    sampled: bool = True
    state_before: dict[str, object] = field(default_factory=dict)
    state_after: dict[str, object] = field(default_factory=dict)
    n_allowed: int | None = None
    allowed_mass: float | None = None
    top_raw: list[Candidate] = field(default_factory=list)
    top_masked: list[Candidate] = field(default_factory=list)
    tokens: list[TokenRecord] = field(default_factory=list)
    draft: list[TokenRecord] = field(default_factory=list)
    finish: str | None = None
    jump: RewriteRecord | None = None

    def explain(self, note: RewriteRecord | None) -> None:
        """The pass reads ids that a stage rewrote: say how; None when it did not."""
        self.jump = note


@dataclass(slots=True)
class Event:
    """A point in the order of events: `launch`, `results_processed`, `mask_ready` or `sampled` of a step.

    `seq` counts over all steps: with overlap the events of two of them interleave.
    """

    seq: int
    name: EventName
    step: int


@dataclass(slots=True)
class OverlapRecord:
    """Whether the next pass was launched before these results were in, and why not; no reason in a loop without."""

    on: bool = False
    gate_reason: GateReason | None = None


@dataclass(slots=True)
class SpeculationRecord:
    """Draft tokens offered and accepted in this turn."""

    drafted: int = 0
    accepted: int = 0


@dataclass(slots=True)
class StepRecord:
    """One turn of the loop.

    Attributes:
        step: number of the turn, from 0. mode: of its pass; `idle` when nothing could run.
        has_grammar, grammars_filled, tp_token_sync, overlap, spec: what to look at, in this order, when asking
            "is it the grammar or the loop?".
        waiting, compiling, running: request ids after the turn. retracted, requeued, ended: in this turn.
        kv: free, evictable, protected and size of the KV pool after the turn, in slots.
        ms: milliseconds by phase of the loop. tree: the prefix cache, when asked for.
    """

    step: int
    mode: Literal["extend", "decode", "idle"] = "idle"
    has_grammar: bool = False
    grammars_filled: list[int] = field(default_factory=list)
    tp_token_sync: bool = False
    overlap: OverlapRecord = field(default_factory=OverlapRecord)
    spec: SpeculationRecord = field(default_factory=SpeculationRecord)
    events: list[Event] = field(default_factory=list)
    requests: list[RequestRecord] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    compiling: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    retracted: list[str] = field(default_factory=list)
    requeued: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    kv: dict[str, int] = field(default_factory=dict)
    ms: dict[str, float] = field(default_factory=dict)
    tree: dict[str, object] | None = None
    schema: str = TRACE_SCHEMA

    def as_dict(self) -> dict[str, object]:
        """The record as JSON values."""
        return asdict(self)


def count_tokens(origins: Sequence[TokenOrigin], drafted: int = 0) -> dict[str, int]:
    """How many tokens came in which way, by the names that results use; `drafted` counts the refused ones too."""
    found = Counter(origins)
    return {
        "sampled": found["sampled"], "jumped": found["jumped"], "forced": found["forced"],
        "drafted": drafted, "accepted": found["draft_accepted"],
    }
