"""Stage 1's hand in the loop: wait for the FSM, mask row by row, advance on the CPU after sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shared_runtime import policy
from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.regex_dialect import escape_choice
from shared_runtime.errors import ConstraintError, EngineStateError, JumpforwardError
from shared_runtime.request import Request
from shared_runtime.schedule_batch import ScheduleBatch
from stages import first_stage_with

from .fsm import RegexFSM, build_fsm
from .fsm_cache import FSMCache
from .regex import make_byte_automaton
from .tokenizer import ReducedVocabulary


@dataclass(slots=True)
class RequestState:
    """Where one request stands. The FSM is shared with others; everything else is its own.

    Attributes:
        state: number of the FSM's state. accepted: tokens taken so far, a stop token included.
        terminated: a stop token was taken.
    """

    fsm: RegexFSM
    state: int = 0
    accepted: int = 0
    terminated: bool = False


class CopiedFSMPolicy:
    """`StagePolicy` of the first generation: `vocabulary` as the FSMs see it, `cache` with the regexes compiled."""

    def __init__(self, context: policy.StageContext) -> None:
        self._context = context
        self.vocabulary = ReducedVocabulary(context.vocabulary)
        self.cache = FSMCache(self._compile, context.limits.compile_timeout)

    def _compile(self, pattern: str) -> RegexFSM:
        budget = Budget(self._context.limits, self._context.progress)
        return build_fsm(make_byte_automaton(pattern, budget), self.vocabulary, budget)

    def admit(self, req: Request) -> policy.Admission:
        """Wait for the FSM, as upstream's loop did: nothing else runs meanwhile. State 0 once it is there."""
        wanted = req.constraint
        if wanted is None:
            return policy.READY
        if wanted.kind not in STAGE.capabilities.constraints:
            return policy.rejected(policy.refuse_kind(wanted, STAGE, first_stage_with(wanted.kind)))
        try:
            pattern = escape_choice(wanted.choices) if wanted.kind == "choice" else wanted.source
            req.grammar = RequestState(self.cache.get(pattern))
        except JumpforwardError as error:
            return policy.rejected(error)
        return policy.READY

    def poll(self) -> list[tuple[Request, policy.Admission]]:
        """Nothing compiles in the background."""
        return []

    def before_decode(self, batch: ScheduleBatch) -> policy.Requeue:
        """Nobody leaves the batch."""
        return policy.Requeue()

    def propose(self, req: Request, room: int) -> policy.Proposal:
        """Nothing: every token is sampled."""
        return policy.NO_PROPOSAL

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """Build each constrained request's Boolean mask and fill -inf, one request after the other.

        Raises:
            EngineStateError: the row decides another token than the grammar waits for (museum row 30: samples of
                unfinished prompts went into the FSM, until #1703).
        """
        masked = []
        for row, (req, position) in enumerate(zip(batch.sampled, positions, strict=True)):
            grammar = _grammar_of(req)
            if grammar is None:
                continue
            if grammar.terminated or grammar.accepted != position:
                raise EngineStateError(f"the row decides output token {position}, its grammar has accepted "
                                       f"{grammar.accepted}", where=f"request {req.rid}")
            mask = torch.from_numpy(grammar.fsm.allowed(grammar.state))
            logits[row].masked_fill_(~mask.to(logits.device), -torch.inf)
            masked.append(row)
        return masked

    def accept(self, batch: ScheduleBatch, rows: Sequence[policy.SampledRow]) -> list[policy.AcceptResult]:
        """Advance each FSM by its row's tokens. A refused token leaves the state where it was."""
        return [self._accept_row(row) for row in rows]

    def _accept_row(self, row: policy.SampledRow) -> policy.AcceptResult:
        grammar = _grammar_of(row.req)
        if grammar is None:
            return policy.AcceptResult(len(row.token_ids))
        for count, token_id in enumerate(row.token_ids):
            ends = token_id in self._context.vocabulary.stop_ids
            after = grammar.state if ends else grammar.fsm.next_state(grammar.state, token_id)
            if grammar.terminated or after < 0 or (ends and not grammar.fsm.accepts(grammar.state)):
                return policy.AcceptResult(count, error=ConstraintError(
                    f"the grammar does not allow token {token_id} after {grammar.accepted} tokens",
                    where=f"request {row.req.rid}"))
            grammar.state, grammar.terminated = after, ends
            grammar.accepted += 1
            if ends:
                return policy.AcceptResult(count + 1, terminated=True)
        return policy.AcceptResult(len(row.token_ids))

    def retract(self, req: Request) -> None:
        """State and output stay: the request goes on where it was."""

    def release(self, req: Request, reason: str) -> None:
        """Let go of the FSM; the cache may keep it."""
        req.grammar = None

    def cancel(self, rid: str) -> None:
        """No request ever waits in `poll`."""

    def describe(self, req: Request) -> dict[str, object]:
        """State number, whether it accepts, and how many tokens it allows."""
        grammar = req.grammar
        if not isinstance(grammar, RequestState):
            return {}
        allowed = 0 if grammar.terminated else int(grammar.fsm.allowed(grammar.state).sum())
        return {"state": grammar.state, "accepting": grammar.fsm.accepts(grammar.state),
                "allowed_tokens": allowed, "terminated": grammar.terminated}


def _grammar_of(req: Request) -> RequestState | None:
    if req.constraint is None:
        return None
    if not isinstance(req.grammar, RequestState):  # never answer a constrained request as a free one
        raise EngineStateError("a constrained request without a grammar", where=f"request {req.rid}")
    return req.grammar


STAGE = policy.StageSpec(
    id=1, name="stage1_copied_fsm", title="Copied FSM: a regex becomes an index from states to tokens",
    years="January 2024",
    commits=(
        ("22085081bb", "release initial code: regex to FSM to token index, a threaded FSMCache"),
        ("40ab1f0129", "#36: retraction; FSM look-up and state reset move to prefill time"),
        ("ca13f3b8c5", "#63: disk cache; the thread goes, compile is synchronous; vocabulary read once"),
    ),
    capabilities=policy.Capabilities(constraints=frozenset({"regex", "choice"}), backends=("fsm",)),
    build=CopiedFSMPolicy,
)
