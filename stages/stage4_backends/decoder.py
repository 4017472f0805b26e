"""Stage 4's hand in the loop: grammars from any backend, one packed mask a batch, and jumps by three methods."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shared_runtime import policy
from shared_runtime.constrain.compiling.failures import library_fault
from shared_runtime.constrain.using.grammar_watch import GrammarWatch, MaskRow
from shared_runtime.constrain.using.respell import common_length, ids_behind, origins_after
from shared_runtime.constraint import CONSTRAINT_KINDS, ConstraintKind
from shared_runtime.errors import ConstraintError, EngineStateError, UnsupportedConstraintError
from shared_runtime.request import Request
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.trace import RewriteRecord
from stages import first_stage_with

from .base_grammar_backend import REGISTRY, BaseGrammarObject
from .grammar_queue import GrammarQueue, RequestState


class BackendsPolicy(policy.FillsAhead):
    """`StagePolicy` of the fourth generation: `backend` compiles, `queue` keeps and awaits what it compiled."""

    def __init__(self, context: policy.StageContext) -> None:
        self._context = context
        self._vocabulary = context.vocabulary
        self.backend = REGISTRY.create(context.backend or STAGE.capabilities.backends[0], context)
        self.queue = GrammarQueue(self.backend, context.limits, context.ranks)
        self._watch = GrammarWatch(context.limits, context.vocabulary)

    def admit(self, req: Request) -> policy.Admission:
        """A grammar from the cache, a place in the compile queue, or the reason why not."""
        wanted = req.constraint
        if wanted is None:
            return policy.READY
        if wanted.kind not in self.backend.kinds:
            able = [name for name in STAGE.capabilities.backends if wanted.kind in STAGE.capabilities.kinds_of(name)]
            return policy.rejected(UnsupportedConstraintError(
                f"the {self.backend.name} backend of stage {STAGE.id} has no {wanted.kind}", where="constraint",
                first_stage=first_stage_with(wanted.kind), fix=f"use --backend {' or '.join(able)}"))
        return self.queue.admit(req, wanted)

    def poll(self) -> list[tuple[Request, policy.Admission]]:
        """What has been compiled, or could not be."""
        return self.queue.poll()

    def before_decode(self, batch: ScheduleBatch) -> policy.Requeue:
        """Take out the requests whose next text is forced, and write it; they come back as an EXTEND."""
        notes: dict[str, RewriteRecord] = {}
        if self._context.options.jump_forward and self._context.memory is not None:
            for req in batch.reqs:
                state = _state_of(req)
                if state is not None and req.rid not in self._watch.failures:
                    note = self._watch.attempt(req, self._jump, req, state)  # a failure ends it at its next token
                    if note is not None:
                        notes[req.rid] = note
        return policy.Requeue([req for req in batch.reqs if req.rid in notes], notes)

    def _jump(self, req: Request, state: RequestState) -> RewriteRecord | None:
        """Move the grammar behind its forced text and write that; None, and nothing changed, where it is refused."""
        helper, least = state.grammar.try_jump_forward(), self._context.options.min_jump_bytes
        if helper is None:
            return None
        appended, next_state = state.grammar.jump_forward_str_state(helper)
        old = self._vocabulary.decode(req.output_ids)
        text = (old + helper.suffix + appended.encode()).decode("utf-8", "ignore")
        written = text.encode()[len(old):]
        new_ids = ids_behind(self._context.tokenizer, req.prompt_ids, text)
        if len(written) < least or new_ids is None or not set(req.sampling.stop_token_ids).isdisjoint(new_ids):
            return None
        # Past the length limit the scheduler cuts; nothing that was sampled, and maybe sent, may be cut with it.
        if len(self._vocabulary.decode(new_ids[:req.sampling.max_new_tokens])) < len(old):
            return None
        if not state.grammar.jump_and_retokenize(req.output_ids, new_ids, next_state):
            return None
        note = RewriteRecord(text[len(old.decode("utf-8", "ignore")):], list(req.output_ids), new_ids,
                             common_length(req.output_ids, new_ids))
        state.accepted = len(new_ids)
        self._rewrite(req, note)
        return note

    def _rewrite(self, req: Request, note: RewriteRecord) -> None:
        """The surgery. The memory goes first: its slots belong to the ids they were computed from."""
        assert self._context.memory is not None
        self._context.memory.release(req)
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

    def fill_mask(self, batch: ScheduleBatch, positions: Sequence[int]) -> policy.FilledMask:
        """One packed mask, filled row by row, moved once, to be applied to all rows at once.

        It is new in every step, so a row without a grammar is all ones (museum row 61).

        Raises:
            EngineStateError: the row decides another token than the grammar waits for.
        """
        entries: list[MaskRow[BaseGrammarObject]] = []
        for row, (req, position) in enumerate(zip(batch.sampled, positions, strict=True)):
            state = _state_of(req)
            if state is not None:
                ended = self._watch.attempt(req, state.grammar.is_terminated)
                if (ended or state.accepted != position) and req.rid not in self._watch.failures:
                    raise EngineStateError(f"the row decides output token {position}, its grammar has accepted "
                                           f"{state.accepted}", where=f"request {req.rid}")
                entries.append(MaskRow(req, row, state.grammar))
        if not entries:
            return policy.FilledMask([])
        mask = BaseGrammarObject.allocate_vocab_mask(self._vocabulary.width, len(batch.sampled), torch.device("cpu"))
        self._watch.fill(entries, mask)
        device = self._context.device
        moved = self._watch.ask_any(entries, lambda grammar: grammar.move_vocab_mask(mask, device),
                                    lambda: BaseGrammarObject.move_vocab_mask(mask, device))
        return policy.FilledMask([entry.row for entry in entries], lambda logits: self._watch.ask_any(
            entries, lambda grammar: grammar.apply_vocab_mask(logits, moved),
            lambda: BaseGrammarObject.apply_vocab_mask(logits, moved)))

    def accept(self, batch: ScheduleBatch, rows: Sequence[policy.SampledRow]) -> list[policy.AcceptResult]:
        """Advance each grammar by its row's tokens. A refused token leaves the state where it was."""
        return [self._accept_row(row) for row in rows]

    def _accept_row(self, row: policy.SampledRow) -> policy.AcceptResult:
        state = _state_of(row.req)
        if state is None:
            return policy.AcceptResult(len(row.token_ids))
        rid = row.req.rid
        if rid in self._watch.failures:
            return policy.AcceptResult(0, error=self._watch.failures[rid])
        for count, token_id in enumerate(row.token_ids):
            try:
                taken = state.grammar.accept_token(token_id)
                ended = taken and state.grammar.is_terminated()
            except BaseException as error:  # a library's own: this request ends, the others go on (museum row 46)
                return policy.AcceptResult(count, error=library_fault(error, rid))
            if not taken:
                return policy.AcceptResult(count, error=ConstraintError(
                    f"the grammar does not allow token {token_id} after {state.accepted} tokens",
                    where=f"request {rid}"))
            state.accepted += 1
            if ended:
                return policy.AcceptResult(count + 1, terminated=True)
        return policy.AcceptResult(len(row.token_ids))

    def retract(self, req: Request) -> None:
        """State and output stay: the request goes on where it was."""

    def release(self, req: Request, reason: str) -> None:
        """Let go of the grammar; the cache may keep what was compiled."""
        req.grammar = None
        self._watch.forget(req.rid)

    def cancel(self, rid: str) -> None:
        """The request waits for no compile any more."""
        self.queue.cancel(rid)

    def describe(self, req: Request) -> dict[str, object]:
        """Backend, whether the text is complete, tokens taken, what is forced."""
        state = req.grammar
        if not isinstance(state, RequestState):
            return {}
        try:
            grammar, ended = state.grammar, state.grammar.is_terminated()
            helper = None if ended else grammar.try_jump_forward()
            return {"backend": self.backend.name, "accepting": grammar.accepting, "terminated": ended,
                    "accepted": state.accepted, "forced": helper.text if helper else ""}
        except BaseException as error:
            return {"failed": str(library_fault(error, req.rid))}


def _state_of(req: Request) -> RequestState | None:
    if req.constraint is None:
        return None
    if not isinstance(req.grammar, RequestState):  # never answer a constrained request as a free one
        raise EngineStateError("a constrained request without a grammar", where=f"request {req.rid}")
    return req.grammar


_REGULAR: frozenset[ConstraintKind] = frozenset({"regex", "choice", "json_schema"})

STAGE = policy.StageSpec(
    id=4, name="stage4_backends", title="Backends: any grammar library, compiled beside the loop",
    years="October 2024 to March 2025",
    commits=(
        ("b77a02cdfd", "#1752: xgrammar beside outlines"),
        ("125b1199c5", "#1996: compiling in a thread pool, a grammar queue"),
        ("54479d6f30", "#2020: base_grammar_backend.py; a grammar per request"),
        ("9c745d078e", "#2056: allocate, fill and apply a packed vocabulary mask"),
        ("acb340728c", "#2526: EBNF"),
        ("3bcf5ecea7", "#2983: regexes in xgrammar"),
        ("022614d26e", "#3060: sampled ids agreed on over ranks"),
        ("7551498a69", "#3298: llguidance"),
        ("bac414ab53", "#3566: structural tags"),
    ),
    capabilities=policy.Capabilities(
        constraints=frozenset(CONSTRAINT_KINDS), backends=("outlines", "xgrammar", "llguidance"),
        backend_constraints={"outlines": _REGULAR}, jump_forward=("none", "scheduler"), async_compile=True,
        overlap="event", tensor_parallel=True, open_backends=True),
    build=BackendsPolicy,
)
