"""Stage 3's hand in the loop: a guide per request, one mask for the batch as it is, and stage 2's jumps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shared_runtime import policy
from shared_runtime.constrain.compiling.failures import own_error
from shared_runtime.errors import ConstraintError, EngineStateError
from shared_runtime.request import Request
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.trace import RewriteRecord, TokenOrigin
from stages import first_stage_with

from .compat import Guide
from .fsm_cache import CompiledRegex, FSMCache
from .jump_forward import retokenize


@dataclass(slots=True)
class RequestState:
    """Where one request stands in the shared `compiled`.

    Attributes:
        guide: position in the index. map_state: position in the jump map, `DEAD` (-1) when it lost its way.
        accepted: tokens taken so far, a stop token included. terminated: a stop token was taken.
    """

    compiled: CompiledRegex
    guide: Guide = field(init=False)
    map_state: int = 0
    accepted: int = 0
    terminated: bool = False

    def __post_init__(self) -> None:
        self.guide = Guide(self.compiled.index)

    def forced(self) -> bytes:
        """The bytes that every text goes on with; b"" when that is not known."""
        return b"" if self.compiled.jumps is None else self.compiled.jumps.forced(self.map_state)


class OutlinesPolicy:
    """`StagePolicy` of the third generation. `cache` holds what is compiled."""

    def __init__(self, context: policy.StageContext) -> None:
        self._context = context
        self._vocabulary = context.vocabulary
        self._stop_ids = sorted(context.vocabulary.stop_ids)
        self.cache = FSMCache(context)

    def admit(self, req: Request) -> policy.Admission:
        """Compile at arrival: nothing else runs meanwhile."""
        wanted = req.constraint
        if wanted is None:
            return policy.READY
        if wanted.kind not in STAGE.capabilities.constraints:
            return policy.rejected(policy.refuse_kind(wanted, STAGE, first_stage_with(wanted.kind)))
        try:
            req.grammar = RequestState(self.cache.get(wanted))
        except Exception as error:  # upstream's "no guide" meant a free answer (museum row 31)
            return policy.rejected(own_error(error))
        return policy.READY

    def poll(self) -> list[tuple[Request, policy.Admission]]:
        """Nothing compiles in the background."""
        return []

    def before_decode(self, batch: ScheduleBatch) -> policy.Requeue:
        """Take out the requests whose next text is forced, and write it; they come back as an EXTEND."""
        notes: dict[str, RewriteRecord] = {}
        for req in batch.reqs:
            grammar = _grammar_of(req)
            jump = None if grammar is None else self._plan(req, grammar)
            if jump is not None:
                note, req.grammar = jump
                self._rewrite(req, note)
                notes[req.rid] = note
        return policy.Requeue([req for req in batch.reqs if req.rid in notes], notes)

    def _plan(self, req: Request, grammar: RequestState) -> tuple[RewriteRecord, RequestState] | None:
        """The jump of a request and its state behind it, or None. Changes nothing: a refused jump is no jump."""
        forced, least = grammar.forced(), self._context.options.min_jump_bytes
        if len(forced) < least or self._context.memory is None:
            return None
        old = self._vocabulary.decode(req.output_ids)
        text = (old + forced).decode("utf-8", "ignore")  # up to a character that `forced` ends inside
        written = text.encode()[len(old):]
        new_ids = retokenize(self._context.tokenizer, req.prompt_ids, text)
        if len(written) < least or new_ids is None or not set(req.sampling.stop_token_ids).isdisjoint(new_ids):
            return None
        # Past the length limit the scheduler cuts; nothing that was sampled, and maybe sent, may be cut with it.
        if len(self._vocabulary.decode(new_ids[:req.sampling.max_new_tokens])) < len(old):
            return None
        # The index numbers its states its own way, so the new ids walk it from the start; it may refuse them.
        after = RequestState(grammar.compiled, accepted=len(new_ids))
        if not all(self._take(after, token_id) for token_id in new_ids):
            return None
        pairs = zip(req.output_ids, new_ids, strict=False)
        common = next((index for index, (was, becomes) in enumerate(pairs) if was != becomes), len(req.output_ids))
        return RewriteRecord(text[len(old.decode("utf-8", "ignore")):], list(req.output_ids), new_ids, common), after

    def _rewrite(self, req: Request, note: RewriteRecord) -> None:
        """The surgery. The memory goes first: its slots belong to the ids they were computed from."""
        assert self._context.memory is not None
        self._context.memory.release(req)
        req.origins = self._origins(note, req.origins)
        req.output_ids = list(note.new_ids)
        del req.logprobs[note.common_prefix:]  # the EXTEND scores the others
        req.metrics.reencoded_tokens += len(note.old_ids) - note.common_prefix
        req.metrics.emitted_tokens = len(note.new_ids)
        if req.detokenizer is not None:
            req.detokenizer.rebuild(note.new_ids)

    def _origins(self, note: RewriteRecord, old: Sequence[TokenOrigin]) -> list[TokenOrigin]:
        """How the new ids came. Kept ids stay what they were; of the others, one with a jumped byte is jumped."""
        came = [how for token_id, how in zip(note.old_ids, old, strict=True)
                for _ in self._vocabulary.token_bytes[token_id]]
        origins, at = list(old[:note.common_prefix]), len(self._vocabulary.decode(note.new_ids[:note.common_prefix]))
        for token_id in note.new_ids[note.common_prefix:]:
            end = at + len(self._vocabulary.token_bytes[token_id])
            origins.append("sampled" if end <= len(came) and "jumped" not in came[at:end] else "jumped")
            at = end
        return origins

    def propose(self, req: Request, room: int) -> policy.Proposal:
        """Nothing: every token is sampled."""
        return policy.NO_PROPOSAL

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """Forbid in one go what the requests of this very batch may not say next.

        The mask is made here and forgotten: upstream made it when the batch was formed, kept a list of FSMs beside
        the requests, and filled rows without a grammar with "forbidden" (museum rows 25, 26, 28, 29).

        Raises:
            EngineStateError: the row decides another token than the grammar waits for.
        """
        forbidden = torch.zeros((len(batch.sampled), logits.shape[1]), dtype=torch.bool)
        masked = []
        for row, (req, position) in enumerate(zip(batch.sampled, positions, strict=True)):
            grammar = _grammar_of(req)
            if grammar is None:
                continue
            if grammar.terminated or grammar.accepted != position:
                raise EngineStateError(f"the row decides output token {position}, its grammar has accepted "
                                       f"{grammar.accepted}", where=f"request {req.rid}")
            forbidden[row] = ~self._allowed(grammar)
            masked.append(row)
        logits.masked_fill_(forbidden.to(logits.device), -torch.inf)
        return masked

    def _allowed(self, grammar: RequestState) -> Tensor:
        """[width] bool: the tokens that may come next; the stop set where the index allows END."""
        allowed = torch.from_numpy(grammar.guide.mask(self._vocabulary.width))
        allowed[self._stop_ids] = self._accepts(grammar)
        return allowed

    def accept(self, batch: ScheduleBatch, rows: Sequence[policy.SampledRow]) -> list[policy.AcceptResult]:
        """Advance each guide by its row's tokens. A refused token leaves the state where it was."""
        return [self._accept_row(row) for row in rows]

    def _accept_row(self, row: policy.SampledRow) -> policy.AcceptResult:
        grammar = _grammar_of(row.req)
        if grammar is None:
            return policy.AcceptResult(len(row.token_ids))
        for count, token_id in enumerate(row.token_ids):
            ends = token_id in self._vocabulary.stop_ids
            if grammar.terminated or not (self._accepts(grammar) if ends else self._take(grammar, token_id)):
                return policy.AcceptResult(count, error=ConstraintError(
                    f"the grammar does not allow token {token_id} after {grammar.accepted} tokens",
                    where=f"request {row.req.rid}"))
            grammar.accepted, grammar.terminated = grammar.accepted + 1, ends
            if ends:
                return policy.AcceptResult(count + 1, terminated=True)
        return policy.AcceptResult(len(row.token_ids))

    def _accepts(self, grammar: RequestState) -> bool:
        return grammar.guide.allows(self._vocabulary.width)

    def _take(self, grammar: RequestState, token_id: int) -> bool:
        """Advance index and map by a token that spells text; False, and nothing changed, where it is not allowed."""
        known = 0 <= token_id < len(self._vocabulary)  # END is no token of the model
        if not known or not grammar.guide.take(token_id):
            return False
        if grammar.compiled.jumps is not None:
            spelled = self._vocabulary.token_bytes[token_id]
            grammar.map_state = grammar.compiled.jumps.dfa.walk(grammar.map_state, spelled)
        return True

    def retract(self, req: Request) -> None:
        """State and output stay: the request goes on where it was."""

    def release(self, req: Request, reason: str) -> None:
        """Let go of the guide; the cache may keep the index."""
        req.grammar = None

    def cancel(self, rid: str) -> None:
        """No request ever waits in `poll`."""

    def describe(self, req: Request) -> dict[str, object]:
        """State numbers of index and map, whether it accepts, how many tokens it allows, what is forced."""
        grammar = req.grammar
        if not isinstance(grammar, RequestState):
            return {}
        return {"state": grammar.guide.state, "map_state": grammar.map_state,
                "accepting": self._accepts(grammar), "terminated": grammar.terminated,
                "allowed_tokens": 0 if grammar.terminated else int(self._allowed(grammar).sum()),
                "forced": grammar.forced().decode("utf-8", "replace")}


def _grammar_of(req: Request) -> RequestState | None:
    if req.constraint is None:
        return None
    if not isinstance(req.grammar, RequestState):  # never answer a constrained request as a free one
        raise EngineStateError("a constrained request without a grammar", where=f"request {req.rid}")
    return req.grammar


STAGE = policy.StageSpec(
    id=3, name="stage3_outlines", title="Outlines as a dependency: the copy goes, JSON schemas come",
    years="February to October 2024",
    commits=(
        ("37b42297f8", "#168: the copied files are deleted, Outlines is imported"),
        ("9935f97b3e", "#1125: json_schema, from schema to regex to FSM"),
        ("e4d68afcf0", "#1357: one FSM cache, keyed by (type, string)"),
        ("fbb4754cb8", "#1376: the mask is built at forward time"),
    ),
    capabilities=policy.Capabilities(constraints=frozenset({"regex", "choice", "json_schema"}),
                                     backends=("outlines",), jump_forward=("none", "scheduler")),
    build=OutlinesPolicy,
)
