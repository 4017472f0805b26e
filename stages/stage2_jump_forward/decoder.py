"""Stage 2's hand in the loop: masks as in stage 1, and forced text written into the output before a decode step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shared_runtime import policy
from shared_runtime.constrain.regex.regex_dialect import escape_choice
from shared_runtime.constrain.using.respell import common_length, origins_after
from shared_runtime.errors import ConstraintError, EngineStateError, JumpforwardError
from shared_runtime.request import Request
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.trace import RewriteRecord
from stages import first_stage_with

from .base_cache import BaseCache
from .fsm import RegexFSM
from .fsm_cache import FSMCache
from .jump_forward import JumpForwardMap, retokenize


@dataclass(slots=True)
class RequestState:
    """Where one request stands in the shared `fsm` and `jumps`, as in stage 1."""

    fsm: RegexFSM
    jumps: JumpForwardMap
    state: int = 0
    accepted: int = 0
    terminated: bool = False


class JumpForwardPolicy:
    """`StagePolicy` of the second generation: `fsm_cache` and `jump_cache` hold what is compiled, per pattern."""

    def __init__(self, context: policy.StageContext) -> None:
        self._context, self._vocabulary = context, context.vocabulary
        self.fsm_cache = FSMCache(context)
        self.jump_cache: BaseCache[JumpForwardMap] = BaseCache()

    def admit(self, req: Request) -> policy.Admission:
        """Compile at arrival: nothing else runs meanwhile. State 0 once it is there."""
        wanted = req.constraint
        if wanted is None:
            return policy.READY
        if wanted.kind not in STAGE.capabilities.constraints:
            return policy.rejected(policy.refuse_kind(wanted, STAGE, first_stage_with(wanted.kind)))
        try:
            pattern = escape_choice(wanted.choices) if wanted.kind == "choice" else wanted.source
            fsm, jumps = self.fsm_cache.compiled(pattern), JumpForwardMap({})
            if self._context.options.jump_forward:
                jumps = self.jump_cache.get(pattern, lambda: JumpForwardMap.of(fsm.dfa))
        except JumpforwardError as error:
            return policy.rejected(error)
        req.grammar = RequestState(fsm, jumps)
        return policy.READY

    def poll(self) -> list[tuple[Request, policy.Admission]]:
        """Nothing compiles in the background."""
        return []

    def before_decode(self, batch: ScheduleBatch) -> policy.Requeue:
        """Write what is forced behind each request's output; those requests leave, and come back as an EXTEND."""
        notes: dict[str, RewriteRecord] = {}
        for req in batch.reqs:
            grammar = _grammar_of(req)
            note = None if grammar is None else self._plan(req, grammar)
            if grammar is not None and note is not None:
                self._rewrite(req, grammar, note)
                notes[req.rid] = note
        return policy.Requeue([req for req in batch.reqs if req.rid in notes], notes)

    def _plan(self, req: Request, grammar: RequestState) -> RewriteRecord | None:
        """The jump of a request, or None. Changes nothing, so that a refused jump is no jump (museum row 18)."""
        forced = grammar.jumps.forced(grammar.state)
        if len(forced) < self._context.options.min_jump_bytes or self._context.memory is None:
            return None
        old = self._vocabulary.decode(req.output_ids)
        text = (old + forced).decode("utf-8", "ignore")  # up to a character that `forced` ends inside
        written = text.encode()[len(old):]
        new_ids = retokenize(self._context.tokenizer, req.prompt_ids, text)
        if len(written) < self._context.options.min_jump_bytes or new_ids is None:
            return None
        # Past the length limit the scheduler cuts; what was sampled, and maybe sent, must not be cut with it.
        kept = self._vocabulary.decode(new_ids[:req.sampling.max_new_tokens])
        stops = not set(req.sampling.stop_token_ids).isdisjoint(new_ids)  # in forced text they would be no stop
        if len(kept) <= len(old) or stops or grammar.fsm.dfa.walk(grammar.state, written) not in grammar.fsm.rows:
            return None
        return RewriteRecord(text[len(old.decode("utf-8", "ignore")):], list(req.output_ids), new_ids,
                             common_length(req.output_ids, new_ids))

    def _rewrite(self, req: Request, grammar: RequestState, note: RewriteRecord) -> None:
        """The surgery. The memory goes first: its slots belong to the ids they were computed from."""
        if self._context.memory is not None:
            self._context.memory.release(req)
        grammar.state = grammar.fsm.dfa.walk(0, self._vocabulary.decode(note.new_ids))
        grammar.accepted = len(note.new_ids)
        req.origins = origins_after(self._vocabulary, note, req.origins, "jumped")
        req.output_ids = list(note.new_ids)
        del req.logprobs[note.common_prefix:]  # the EXTEND scores the others
        req.metrics.reencoded_tokens += len(note.old_ids) - note.common_prefix
        req.metrics.emitted_tokens = len(note.new_ids)
        if req.detokenizer is not None:
            req.detokenizer.rebuild(note.new_ids)

    def propose(self, req: Request, room: int) -> policy.Proposal:
        """Nothing: every token is sampled."""
        return policy.NO_PROPOSAL

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """Build each constrained request's Boolean mask and fill -inf, one request after the other.

        Raises:
            EngineStateError: the row decides another token than the grammar waits for.
        """
        masked = []
        for row, (req, position) in enumerate(zip(batch.sampled, positions, strict=True)):
            grammar = _grammar_of(req)
            if grammar is None:
                continue
            if grammar.terminated or grammar.accepted != position:
                raise EngineStateError(f"the row decides output token {position}, its grammar has accepted "
                                       f"{grammar.accepted}", where=f"request {req.rid}")
            forbidden = ~torch.from_numpy(grammar.fsm.allowed(grammar.state)).to(logits.device)
            logits[row].masked_fill_(forbidden, -torch.inf)
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
            ends = token_id in self._vocabulary.stop_ids
            after = grammar.state if ends else grammar.fsm.next_state(grammar.state, token_id)
            if grammar.terminated or after < 0 or (ends and not grammar.fsm.accepts(grammar.state)):
                return policy.AcceptResult(count, error=ConstraintError(
                    f"the grammar does not allow token {token_id} after {grammar.accepted} tokens",
                    where=f"request {row.req.rid}"))
            grammar.state, grammar.terminated, grammar.accepted = after, ends, grammar.accepted + 1
            if ends:
                return policy.AcceptResult(count + 1, terminated=True)
        return policy.AcceptResult(len(row.token_ids))

    def retract(self, req: Request) -> None:
        """State and output stay: the request goes on where it was, jumped text included (museum row 6)."""

    def release(self, req: Request, reason: str) -> None:
        """Let go of the FSM; the caches may keep it."""
        req.grammar = None

    def cancel(self, rid: str) -> None:
        """No request ever waits in `poll`."""

    def describe(self, req: Request) -> dict[str, object]:
        """State number, whether it accepts, how many tokens it allows, and the text that is forced from it."""
        grammar = req.grammar
        if not isinstance(grammar, RequestState):
            return {}
        allowed = 0 if grammar.terminated else int(grammar.fsm.allowed(grammar.state).sum())
        return {"state": grammar.state, "accepting": grammar.fsm.accepts(grammar.state),
                "allowed_tokens": allowed, "terminated": grammar.terminated,
                "forced": grammar.jumps.forced(grammar.state).decode("utf-8", "replace")}


def _grammar_of(req: Request) -> RequestState | None:
    if req.constraint is None:
        return None
    if not isinstance(req.grammar, RequestState):  # never answer a constrained request as a free one
        raise EngineStateError("a constrained request without a grammar", where=f"request {req.rid}")
    return req.grammar


STAGE = policy.StageSpec(
    id=2, name="stage2_jump_forward", title="Jump-forward: forced text is written, not sampled",
    years="January to February 2024, repaired until October 2024", commits=(
        ("01ee0fbc05", "fast regex decode: the fast-forward map, retokenization"),
        ("71b54eea7d", "#119: BaseCache with hit rate and average time"),
        ("26f0bedc8f", "#144: fast-forward is renamed jump-forward"),
        ("9c902b1954", "#517, back-ported: a map over bytes, all-or-nothing jumps"),
        ("e205527cb1", "#1084, back-ported: accepting states never jump"),
    ),
    capabilities=policy.Capabilities(frozenset({"regex", "choice"}), ("fsm",), jump_forward=("none", "scheduler")),
    build=JumpForwardPolicy,
)
