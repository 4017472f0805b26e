"""Stage 5's hand in the loop: ask the manager, fill one mask for the batch, accept. The scheduler has no jump."""

from __future__ import annotations

from collections.abc import Sequence

from shared_runtime import policy
from shared_runtime.constrain.failures import own_error
from shared_runtime.constrain.mask_watch import MaskEntry, MaskWatch
from shared_runtime.constrain.reasoning import think_end_id
from shared_runtime.constraint import CONSTRAINT_KINDS
from shared_runtime.errors import EngineStateError
from shared_runtime.request import Request
from shared_runtime.schedule_batch import ScheduleBatch
from stages import first_stage_with

from .base_grammar_backend import REGISTRY, BaseGrammarBackend, BaseGrammarObject
from .grammar_manager import GrammarManager
from .reasoner_grammar_backend import ReasonerGrammarBackend, ReasonerGrammarObject
from .utils import MaskBuffer


class GrammarManagerPolicy(policy.FillsAhead):
    """`StagePolicy` of the fifth generation.

    Attributes:
        backend: what compiles; the reasoner around it when the engine has a `think_end`.
        manager: cache and compile queue.
    """

    def __init__(self, context: policy.StageContext) -> None:
        self._context = context
        name = context.backend or STAGE.capabilities.backends[0]
        self.backend: BaseGrammarBackend = REGISTRY.create(name, context)
        if context.options.think_end is not None:
            end_id = think_end_id(context.tokenizer, context.options.think_end)
            self.backend = ReasonerGrammarBackend(context, self.backend, end_id)
        self.manager = GrammarManager(self.backend, context.limits, context.ranks)
        self._masks = MaskBuffer(context.vocabulary.width, context.device)
        self._watch = MaskWatch(context.limits, context.vocabulary)

    def admit(self, req: Request) -> policy.Admission:
        """Grammar from the cache, a place in the compile queue, or the reason why not."""
        if req.constraint is not None and req.constraint.kind not in STAGE.capabilities.constraints:
            return policy.rejected(policy.refuse_kind(req.constraint, STAGE, first_stage_with(req.constraint.kind)))
        return self.manager.admit(req)

    def poll(self) -> list[tuple[Request, policy.Admission]]:
        """What has been compiled, on every rank."""
        return self.manager.poll()

    def before_decode(self, batch: ScheduleBatch) -> policy.Requeue:
        """Nobody leaves the batch any more: 935cda944b (#4032) took jump-forward out of the scheduler."""
        return policy.Requeue()

    def propose(self, req: Request, room: int) -> policy.Proposal:
        """Nothing: every token is sampled."""
        return policy.NO_PROPOSAL

    def fill_mask(self, batch: ScheduleBatch, positions: Sequence[int]) -> policy.FilledMask:
        """One packed mask for the batch: filled by the backend's own batch call, moved once, applied by one kernel.

        Rows without a grammar are all ones in every step, and no kernel touches them.
        """
        entries = []
        for row, (req, position) in enumerate(zip(batch.sampled, positions, strict=True)):
            grammar = _grammar_of(req)
            if grammar is not None:
                if grammar.is_terminated() or grammar.accepted != position:  # museum rows 30 and 39
                    raise EngineStateError(f"the row decides output token {position}, its grammar has accepted "
                                           f"{grammar.accepted}", where=f"request {req.rid}")
                entries.append((row, grammar))
        if not entries:
            return policy.FilledMask([])
        mask = self._masks.rows(len(batch.sampled))
        first, rows = entries[0][1], [row for row, _ in entries]
        self._watch.fill([MaskEntry(batch.sampled[row].rid, row, grammar) for row, grammar in entries], mask,
                         together=lambda: first.fill_vocab_mask_batched(entries, mask))
        moved = first.move_vocab_mask(mask, self._context.device)
        self._masks.sent()
        return policy.FilledMask(rows, lambda logits: first.apply_vocab_mask(logits, moved, rows))

    def accept(self, batch: ScheduleBatch, rows: Sequence[policy.SampledRow]) -> list[policy.AcceptResult]:
        """Advance each grammar. A refused token ends its own request and no other (64e78bb31b, #7897)."""
        return [self._accept_row(row) for row in rows]

    def _accept_row(self, row: policy.SampledRow) -> policy.AcceptResult:
        grammar = _grammar_of(row.req)
        if grammar is None:
            return policy.AcceptResult(len(row.token_ids))
        rid = row.req.rid
        if rid in self._watch.failures:
            return policy.AcceptResult(0, error=self._watch.failures[rid])
        for count, token_id in enumerate(row.token_ids):
            try:
                grammar.accept_token(token_id)
            except Exception as error:  # whatever a library throws is this request's failure
                return policy.AcceptResult(count, error=own_error(error, where=f"request {rid}"))
            if grammar.is_terminated():
                return policy.AcceptResult(count + 1, terminated=True)
        return policy.AcceptResult(len(row.token_ids))

    def retract(self, req: Request) -> None:
        """State and output stay: the request goes on where it was."""

    def release(self, req: Request, reason: str) -> None:
        """Let go of the grammar; the cache keeps the compiled part."""
        req.grammar = None
        self._watch.forget(req.rid)

    def cancel(self, rid: str) -> None:
        """Out of the compile queue; twice is once."""
        self.manager.cancel(rid)

    def describe(self, req: Request) -> dict[str, object]:
        """Whether it accepts, has ended, or is still thinking."""
        grammar = req.grammar
        if not isinstance(grammar, BaseGrammarObject):
            return {}
        shown: dict[str, object] = {"accepting": grammar.accepting, "terminated": grammar.is_terminated()}
        if isinstance(grammar, ReasonerGrammarObject):
            shown |= {"thinking": grammar.thinking, "think_tokens": grammar.think_tokens}
        return shown


def _grammar_of(req: Request) -> BaseGrammarObject | None:
    if req.constraint is None:
        return None
    if not isinstance(req.grammar, BaseGrammarObject):  # never answer a constrained request as a free one
        raise EngineStateError("a constrained request without a grammar", where=f"request {req.rid}")
    return req.grammar


STAGE = policy.StageSpec(
    id=5, name="stage5_backend_jump", title="A grammar manager and one mask a batch; nothing jumps",
    years="March 2025 to July 2026",
    commits=(
        ("935cda944b", "#4032: jump-forward removed from the scheduler"),
        ("7c5658c189", "#4984: no grammar before the end of the reasoning part"),
        ("01bdbf7f80", "#6188: cache written at synchronised points, timeout, accept_token raises"),
        ("20fd53b8f6", "#6803: an invalid grammar ends its request; waiting requests can be aborted"),
        ("5b7bed7ca4", "#16820: grammar_manager.py split out of the scheduler"),
        ("e7dc85c50b", "#17100: ranks agree on sets, ready = intersection, failed = union"),
    ),
    capabilities=policy.Capabilities(
        constraints=frozenset(CONSTRAINT_KINDS), backends=("xgrammar", "outlines", "llguidance"), open_backends=True,
        async_compile=True, overlap="delayed", overlaps_by_default=True, tensor_parallel=True, reasoning=True,
        backend_constraints={"outlines": frozenset({"regex", "choice", "json_schema"})}),
    build=GrammarManagerPolicy,
)
