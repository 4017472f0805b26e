"""The contract between the runtime and a stage: `StagePolicy`, the stage's hand in the loop.

Who owns what
    The scheduler owns requests, batches and memory. The policy owns `Request.grammar` and everything behind it;
    it is the only one to advance a grammar, and it never touches the KV pool, except for the requests that it
    takes out of a batch in `before_decode`.
Locks
    Every method is called on the scheduler's thread, one at a time, in the order of the loop. A policy may use
    threads of its own (to compile); what it shares with them it locks itself.
Errors
    A method that fails for one request says so in its result, naming the error; it does not raise. What it
    raises is a defect, and ends the engine's step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import torch
from torch import Tensor

# Parts of the contract that have files of their own: a stage says `policy.READY`.
from shared_runtime.accept_result import AcceptResult as AcceptResult
from shared_runtime.accept_result import SampledRow as SampledRow
from shared_runtime.admission import COMPILING as COMPILING
from shared_runtime.admission import READY as READY
from shared_runtime.admission import Admission as Admission
from shared_runtime.admission import AdmitState as AdmitState
from shared_runtime.admission import rejected as rejected
from shared_runtime.constraint import Constraint, ConstraintKind
from shared_runtime.errors import UnsupportedConstraintError
from shared_runtime.execution.rank_group import RankGroup, SingleRank
from shared_runtime.filled_mask import FilledMask as FilledMask
from shared_runtime.filled_mask import FillsAhead as FillsAhead
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.setting_checks import check_choice, check_flags, check_kind, check_whole
from shared_runtime.trace import RewriteRecord
from shared_runtime.vocabulary import Vocabulary

if TYPE_CHECKING:
    from shared_runtime.kv_memory import KVMemory
    from shared_runtime.request import Request
    from shared_runtime.schedule_batch import ScheduleBatch
    from shared_runtime.tokenizer import Tokenizer

JumpForward = Literal["none", "scheduler", "draft", "force"]
BackendJump = Literal["none", "draft", "force", "force+draft"]
Speculation = Literal["none", "ngram"]
OverlapScheme = Literal["event", "delayed"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a generation could do, as data: read by scheduler, command line, tests and docs.

    Attributes:
        constraints: the kinds a request may ask for. backends: the grammar engines to choose from.
        jump_forward: every way of jumping that the stage has; `none` alone means it never jumps.
        overlap: how its loop overlaps CPU and model (see `execution/overlap_loop.py`); None when it does not.
        overlaps_by_default: whether it does so unless told otherwise.
        async_compile, speculation, tensor_parallel, reasoning: whether the stage has it at all.
        backend_constraints: the kinds of a backend that has fewer than the stage; left out, it has them all.
        open_backends: whether others may be registered with the stage under names of their own.
    """

    constraints: frozenset[ConstraintKind]
    backends: tuple[str, ...]
    jump_forward: tuple[JumpForward, ...] = ("none",)
    async_compile: bool = False
    overlap: OverlapScheme | None = None
    overlaps_by_default: bool = False
    speculation: bool = False
    tensor_parallel: bool = False
    reasoning: bool = False
    backend_constraints: Mapping[str, frozenset[ConstraintKind]] = field(default_factory=dict, hash=False)
    open_backends: bool = False

    def kinds_of(self, backend: str | None) -> frozenset[ConstraintKind]:
        """The kinds that a backend of this stage can serve; None stands for the default, the first one."""
        name = backend if backend is not None else next(iter(self.backends), "")
        return self.constraints & self.backend_constraints.get(name, self.constraints)

    def scheme(self, overlap: bool | None) -> OverlapScheme | None:
        """How the loop overlaps under a setting; None stands for the stage's default."""
        return self.overlap if (self.overlaps_by_default if overlap is None else overlap) else None


@dataclass(frozen=True, slots=True)
class Requeue:
    """What `before_decode` took out of the batch.

    The policy has already given back their table rows and slots (`KVMemory.release`, before it rewrote any id:
    slots belong to the ids they were computed from). `reqs` go to the end of the waiting queue and come back as an
    EXTEND. The scheduler looks at each first: a stop string may have come, or the length limit been reached.

    Attributes:
        reqs: the requests. notes: per request id, what was done to it, for the trace.
    """

    reqs: Sequence[Request] = ()
    notes: Mapping[str, RewriteRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Tokens that a stage puts behind a request's newest token (its prompt's last, at first), fed in the same pass.

    Attributes:
        forced: appended to the output outright, without being sampled; the policy has advanced its grammar over
            them already.
        draft: a guess at what comes then. The pass verifies it: position by position a token is sampled as ever,
            and as long as it is the drafted one, the next position counts too. So a draft changes how many passes
            are needed, and never a token. The policy's grammar still stands before the draft. Cut at the first id
            that is no token of the vocabulary.
        source: who made it, for the trace.
    """

    forced: tuple[int, ...] = ()
    draft: tuple[int, ...] = ()
    source: str = ""


NO_PROPOSAL = Proposal()


class StagePolicy(Protocol):
    """A stage's hand in the loop; the numbers are those of the loop in `scheduler.py`."""

    def admit(self, req: Request) -> Admission:
        """1. A constrained request has arrived: prepare its grammar, or say why it cannot be served."""
        ...

    def poll(self) -> list[tuple[Request, Admission]]:
        """2. Requests that were COMPILING and are now READY or REJECTED. Never blocks."""
        ...

    def before_decode(self, batch: ScheduleBatch) -> Requeue:
        """3. A decode step is about to be prepared; take requests out of the batch, or nothing."""
        ...

    def propose(self, req: Request, room: int) -> Proposal:
        """4. A request is about to be read to its end: tokens to feed behind that, `NO_PROPOSAL` for none.

        That is so in every decode step, and when its prompt, or its text after a retraction, is read for the last part.

        Args:
            req: the request; free ones are asked too.
            room: most tokens of a proposal, at least 1: the request may have no more. Of a draft less may be
                verified, or nothing, for want of memory.
        """
        ...

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """6. Rewrite the sampling support: -inf where a token is not allowed, in place.

        Args:
            logits: [rows, width] float32. Row i belongs to `batch.sampled[i]`. Rows of unconstrained requests
                must stay bit-identical.
            batch: the requests; `batch.ahead[i]` are the drafted tokens in front of row i, () unless drafts are
                verified. A request's rows stand together, the one without tokens ahead first. Behind a draft
                that the grammar refuses, a row may hold anything: it is never reached.
            positions: per row, the index of the output token that it decides.

        Returns:
            The rows that a grammar was applied to. The stop set is allowed in a row iff its grammar accepts
            there; a row may come out all -inf (the sampler ends that request with an error).
        """
        ...

    def accept(self, batch: ScheduleBatch, rows: Sequence[SampledRow]) -> list[AcceptResult]:
        """8. Advance each constrained request's grammar by its tokens; one result a row, in order.

        A token of the model's stop set ends the grammar. A request's extra stop tokens never get here: they end
        the text and are no part of it.
        """
        ...

    def retract(self, req: Request) -> None:
        """The request goes back to the queue for want of memory: its output and its state stay as they are."""
        ...

    def release(self, req: Request, reason: str) -> None:
        """The request has ended. Idempotent; also called for requests that never became READY."""
        ...

    def cancel(self, rid: str) -> None:
        """The request was aborted while COMPILING: it must not come back from `poll`. Idempotent."""
        ...

    def describe(self, req: Request) -> dict[str, object]:
        """The grammar's state for the trace: JSON values only, {} when there is nothing to show."""
        ...


Whitespace = Literal["compact", "any"]


@dataclass(frozen=True, slots=True)
class StageOptions:
    """Settings that only some stages look at; the others ignore them.

    Attributes:
        jump_forward: False switches jumping off in the stages that jump (upstream's `--disable-jump-forward`).
        min_jump_bytes: shorter forced texts are sampled: a jump costs a whole re-admission (upstream skipped
            those of one character, and of one byte since #517).
        whitespace: between JSON tokens: `compact` is `, ` and `: ` on every backend; `any` lets the model choose,
            within bounds.
        strict: refuse a grammar of which a library would drop a part, instead of warning.
        disk_cache: folder for compiled grammars, for the generations that had one; None keeps none.
        think_end: the token that ends a reasoning part, by its printed name; constrained answers then begin with
            such a part, and the grammar starts behind that token. None for a model that does not reason.
        backend_jump: what to do with text that the grammar forces: nothing, offer it as a draft, append it, or append
            it and offer the tail that is held back.
        spec: drafts for every request, constrained or not; `ngram` looks them up in its own prompt and output.
    """

    jump_forward: bool = True
    min_jump_bytes: int = 2
    whitespace: Whitespace = "compact"
    strict: bool = False
    disk_cache: Path | None = None
    think_end: str | None = None
    backend_jump: BackendJump = "none"
    spec: Speculation = "none"

    def __post_init__(self) -> None:
        check_flags(jump_forward=self.jump_forward, strict=self.strict)
        check_whole("min_jump_bytes", self.min_jump_bytes)
        check_choice("whitespace", self.whitespace, get_args(Whitespace))
        check_kind("disk_cache", self.disk_cache, Path)
        check_choice("backend_jump", self.backend_jump, get_args(BackendJump))
        check_choice("spec", self.spec, get_args(Speculation))

    @property
    def forces_text(self) -> bool:
        """Whether the backend's forced text is used: the gate's reason `backend_jump`."""
        return self.backend_jump != "none"

    def beside_overlap(self) -> StageOptions:
        """No scheduler jumps: one would rewrite a request whose next pass is already running (#2095)."""
        return replace(self, jump_forward=False)


@dataclass(frozen=True, slots=True)
class Wish:
    """A setting that not every generation has: its name, what a stage without it is told, and how to know."""

    setting: str
    lack: str
    granted_by: Callable[[Capabilities], bool]


def wishes(options: StageOptions, overlap: bool, ranks: int = 1) -> list[Wish]:
    """What these settings ask of a stage beyond its constraint kinds."""
    jumps = set(options.backend_jump.split("+")) - {"none"}
    known = [
        (options.think_end is not None, Wish("think_end", "knows of no reasoning part", lambda can: can.reasoning)),
        (overlap, Wish("overlap", "has no overlap scheduling", lambda can: bool(can.overlap))),
        (options.spec != "none", Wish("spec", "verifies no drafts", lambda can: can.speculation)),
        (bool(jumps), Wish("backend_jump", "has no jump by the backend", lambda can: jumps <= set(can.jump_forward))),
        (ranks > 1, Wish("ranks", "agrees on nothing with other processes", lambda can: can.tensor_parallel)),
    ]
    return [wish for wanted, wish in known if wanted]


@dataclass(frozen=True, slots=True)
class StageContext:
    """What a stage is built from.

    Attributes:
        vocabulary: tokens as bytes. tokenizer: for stages that encode text themselves.
        device: where logits live. limits: on grammars.
        backend: the grammar engine asked for, None for the stage's default.
        progress: called with (what, done, total) during long compiles; total 0 when unknown.
        options: settings that only some stages look at.
        memory: the KV pool and its caches, for stages that take requests out of a batch; None outside an engine.
        ranks: the processes that run this model together, for decisions that depend on time.
    """

    vocabulary: Vocabulary
    tokenizer: Tokenizer
    device: torch.device
    limits: GrammarLimits = field(default_factory=GrammarLimits)
    backend: str | None = None
    progress: Callable[[str, int, int], None] | None = None
    options: StageOptions = field(default_factory=StageOptions)
    memory: KVMemory | None = None
    ranks: RankGroup = field(default_factory=SingleRank)


@dataclass(frozen=True, slots=True)
class StageSpec:
    """What a stage package exports as `STAGE`.

    Attributes:
        id: 1 to 5. name: the package's name. title: a line for people. years: when upstream worked this way.
        commits: upstream commits the stage is rebuilt from, (hash, what it did).
        capabilities: what this generation could do. build: makes the policy.
    """

    id: int
    name: str
    title: str
    years: str
    commits: tuple[tuple[str, str], ...]
    capabilities: Capabilities
    build: Callable[[StageContext], StagePolicy]


def refuse_kind(constraint: Constraint, spec: StageSpec, first_stage: int | None) -> UnsupportedConstraintError:
    """The error for a constraint kind that this generation lacks, naming the first stage that has it."""
    kinds = ", ".join(sorted(spec.capabilities.constraints))
    fix = f"use --stage {first_stage}" if first_stage else f"this stage has: {kinds}"
    return UnsupportedConstraintError(f"stage {spec.id} ({spec.name}) has no {constraint.kind}", where="constraint",
                                      first_stage=first_stage, fix=fix)
