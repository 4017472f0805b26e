"""Stage 5's hand in the loop: ask the manager, fill one mask for the batch, accept. The scheduler has no jump."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from shared_runtime import policy
from shared_runtime.constrain.compiling.failures import library_fault
from shared_runtime.constrain.using.grammar_watch import GrammarWatch, MaskRow
from shared_runtime.constrain.using.reasoning import think_end_id
from shared_runtime.constraint import CONSTRAINT_KINDS
from shared_runtime.errors import EngineStateError
from shared_runtime.request import Request
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.verification import first_rows
from stages import first_stage_with

from .backend_jump import BackendJump
from .base_grammar_backend import REGISTRY, BaseGrammarBackend, BaseGrammarObject
from .grammar_manager import GrammarManager
from .reasoner_grammar_backend import ReasonerGrammarBackend, ReasonerGrammarObject
from .utils import MaskBuffer, apply_bitmask


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
        self._watch = GrammarWatch(context.limits, context.vocabulary)
        self._jump = BackendJump(context)

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
        """What the grammar forces or a lookup guesses; by default nothing: every token is sampled, as upstream."""
        if not self._jump.active or req.rid in self._watch.failures:
            return policy.NO_PROPOSAL
        return self._watch.attempt(req, self._jump.propose, req, _grammar_of(req), room) or policy.NO_PROPOSAL

    def fill_mask(self, batch: ScheduleBatch, positions: Sequence[int]) -> policy.FilledMask:
        """One packed mask for the batch: filled by the backend's own calls, moved once, applied by one kernel.

        Rows without a grammar, and those behind a refused draft, are all ones in every step; no kernel touches them.
        """
        entries: list[MaskRow[DraftedRows]] = []
        for row, req, draft in first_rows(batch):
            grammar = _grammar_of(req)
            if grammar is not None:
                ended = self._watch.attempt(req, grammar.is_terminated)
                misplaced = ended or grammar.accepted != positions[row]  # museum rows 30 and 39
                if misplaced and req.rid not in self._watch.failures:
                    raise EngineStateError(f"the row decides output token {positions[row]}, its grammar has accepted "
                                           f"{grammar.accepted}", where=f"request {req.rid}")
                entries.append(MaskRow(req, row, DraftedRows(grammar, draft), 1 + len(draft)))
        if not entries:
            return policy.FilledMask([])
        mask = self._masks.rows(len(batch.sampled))
        plain = [entry for entry in entries if not entry.grammar.draft]
        self._watch.fill(plain, mask, together=lambda: _fill_together(plain, mask))
        self._watch.fill([entry for entry in entries if entry.grammar.draft], mask)
        rows = [entry.row + behind for entry in entries for behind in range(entry.grammar.reached)]
        moved = self._watch.ask_any(entries, lambda one: one.grammar.move_vocab_mask(mask, self._context.device),
                                    lambda: mask.to(self._context.device))
        self._masks.sent()
        return policy.FilledMask(rows, lambda logits: self._watch.ask_any(
            entries, lambda one: one.grammar.apply_vocab_mask(logits, moved, rows),
            lambda: apply_bitmask(logits, moved, rows)))

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
                ended = grammar.is_terminated()
            except BaseException as error:  # whatever a library throws is this request's failure
                return policy.AcceptResult(count, error=library_fault(error, rid))
            if ended:
                return policy.AcceptResult(count + 1, terminated=True)
        return policy.AcceptResult(len(row.token_ids))

    def retract(self, req: Request) -> None:
        """State and output stay: the request goes on where it was."""

    def release(self, req: Request, reason: str) -> None:
        """Let go of the grammar; the cache keeps the compiled part."""
        req.grammar = None
        self._watch.forget(req.rid)
        self._jump.forget(req)

    def cancel(self, rid: str) -> None:
        """Out of the compile queue; twice is once."""
        self.manager.cancel(rid)

    def describe(self, req: Request) -> dict[str, object]:
        """Whether it accepts, has ended, or is still thinking."""
        grammar = req.grammar
        if not isinstance(grammar, BaseGrammarObject):
            return {}
        try:
            shown: dict[str, object] = {"accepting": grammar.accepting, "terminated": grammar.is_terminated()}
        except BaseException as error:
            return {"failed": str(library_fault(error, req.rid))}
        if isinstance(grammar, ReasonerGrammarObject):
            shown |= {"thinking": grammar.thinking, "think_tokens": grammar.think_tokens}
        return shown


@dataclass(slots=True)
class DraftedRows:
    """A request's rows of the mask: its first, and one behind each token of its draft, as far as they are `reached`."""

    grammar: BaseGrammarObject
    draft: tuple[int, ...]
    reached: int = 1

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """Fill them, the first at `row`."""
        self.reached = self.grammar.fill_vocab_mask_drafted(mask, row, self.draft)


def _fill_together(plain: Sequence[MaskRow[DraftedRows]], mask: Tensor) -> None:
    """Rows without drafts, in the backend's own batch call."""
    if plain:
        plain[0].grammar.grammar.fill_vocab_mask_batched([(one.row, one.grammar.grammar) for one in plain], mask)


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
        jump_forward=("none", "draft", "force"), async_compile=True, overlap="delayed", overlaps_by_default=True,
        speculation=True, tensor_parallel=True, reasoning=True,
        backend_constraints={"outlines": frozenset({"regex", "choice", "json_schema"})}),
    build=GrammarManagerPolicy,
)
