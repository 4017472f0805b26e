"""The llguidance backend: derivatives of regexes and an Earley parser, no compile worth the name (#3298, 2025-02).

Where text is forced, its mask holds one token only: the one that its own tokenization of the text would take. So the
model's spelling is kept without any jump, and the mask is smaller than the language; see `deviations.toml`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from shared_runtime.config import usable_cores
from shared_runtime.constrain.grammars.start_check import check_start
from shared_runtime.constrain.grammars.structural_format import read_either_form
from shared_runtime.constrain.libraries.known_deviations import warnings_of
from shared_runtime.constrain.libraries.llguidance_source import LLGuidanceSource, check_matcher, first_line
from shared_runtime.constrain.schema.json_schema_checks import SchemaSource
from shared_runtime.constrain.using.draft_rows import keep_reached, text_part
from shared_runtime.constrain.using.fill_gate import FillGate
from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint
from shared_runtime.errors import ConstraintError, UnsupportedConstraintError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .base_grammar_backend import DEVIATIONS, BaseGrammarBackend, BaseGrammarObject, Compiled
from .utils import filter_tokens

if TYPE_CHECKING:
    import llguidance

# 100 schemas of ten properties, after their first mask, took 6.4 MB; the library does not say.
_BYTES_PER_MATCHER = 64 << 10
_BYTES_PER_CHARACTER = 16
_DEAD_END = ("NoExtension", "NoExtensionBias")


class LLGuidanceGrammar(BaseGrammarObject):
    """A matcher. A token is asked about before it is consumed: a wrong one would poison the matcher for good."""

    def __init__(self, vocabulary: Vocabulary, backend: LLGuidanceGrammarBackend, matcher: llguidance.LLMatcher,
                 source_length: int) -> None:
        super().__init__(vocabulary)
        self._backend = backend
        self._matcher = matcher
        self._source_length = source_length
        self._ids: list[int] = []

    @property
    def nbytes(self) -> int:
        """An estimate, see `_BYTES_PER_MATCHER`."""
        return _BYTES_PER_MATCHER + _BYTES_PER_CHARACTER * self._source_length

    @property
    def accepting(self) -> bool:
        """Whether the text so far is complete."""
        return self._matcher.is_accepting()

    def copy(self) -> LLGuidanceGrammar:
        """A matcher of its own at the beginning; a few microseconds."""
        matcher = self._matcher.deep_copy()
        if self._ids and not matcher.reset():
            raise ConstraintError(f"llguidance cannot start again: {first_line(matcher.get_error())}", where="copy")
        return LLGuidanceGrammar(self.vocabulary, self._backend, matcher, self._source_length)

    def _accept_text(self, token_id: int) -> bool:
        if self._matcher.validate_tokens([token_id]) != 1 or self._matcher.try_consume_tokens([token_id]) != 1:
            return False
        self._ids.append(token_id)
        return True

    def _rollback_text(self, k: int) -> None:
        if k > len(self._ids):
            raise ValueError(f"cannot take back {k} of {len(self._ids)} tokens")
        if not self._matcher.rollback(k):
            raise ConstraintError(f"llguidance cannot go back: {first_line(self._matcher.get_error())}",
                                  where="rollback")
        del self._ids[-k:]

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """The library's mask, with our rule for the stop set: it offers EOS where it is stuck, too."""
        if self.finished:
            raise ConstraintError("the grammar has ended: nothing may follow", where="mask")
        words = mask[row]
        self._matcher.unsafe_compute_mask_ptr(words.data_ptr(), 4 * words.numel())
        self._set_stops(mask, row)

    def fill_vocab_mask_batched(self, entries: Sequence[tuple[int, BaseGrammarObject]], mask: Tensor) -> None:
        """In the library's threads where that pays; one by one otherwise, or when a grammar is of another kind."""
        grammars = [(row, one) for row, one in entries if isinstance(one, LLGuidanceGrammar) and not one.finished]
        if len(grammars) < max(2, len(entries)) or not mask.is_contiguous():
            super().fill_vocab_mask_batched(entries, mask)
            return

        def fill(parallel: bool) -> None:
            if not parallel:
                super(LLGuidanceGrammar, self).fill_vocab_mask_batched(entries, mask)
                return
            # Not by `llguidance.torch`, whose import alone loads torch's compiler and takes seconds.
            self._backend.threads.unsafe_compute_mask_ptr([(one._matcher, row) for row, one in grammars],
                                                          mask.data_ptr(), 4 * mask.shape[1], mask.shape[0])
            for row, one in grammars:
                one._set_stops(mask, row)

        self._backend.gate.run(len(grammars), fill)

    def _set_stops(self, mask: Tensor, row: int) -> None:
        if self._matcher.is_error() and self._matcher.stop_reason() not in _DEAD_END:
            raise ConstraintError(f"llguidance: {first_line(self._matcher.get_error())}", where="mask")
        filter_tokens(mask, row, self.vocabulary.stop_ids, allowed=self.accepting, reset=False)

    def fill_vocab_mask_drafted(self, mask: Tensor, row: int, draft: Sequence[int]) -> int:
        """By the library's call for drafts; where the stop set is allowed, it does not say."""
        text = text_part(draft, self.vocabulary)
        if not text or self.finished or not mask.is_contiguous():
            return super().fill_vocab_mask_drafted(mask, row, draft)
        self._backend.threads.unsafe_compute_mask_ptr_with_draft_token(
            [(self._matcher, row, text)], mask.data_ptr(), 4 * mask.shape[1], mask.shape[0])
        reached = keep_reached(mask, row, draft, self.vocabulary)
        taken = 0
        try:
            self._set_stops(mask, row)
            for token_id in text[:reached - 1]:
                self.accept_token(token_id)
                taken += 1
                self._set_stops(mask, row + taken)
        finally:
            self.rollback(taken)
        return reached

    def forced_bytes(self) -> bytes:
        """The library's; none once it is stopped."""
        return b"" if self._matcher.is_stopped() else self._matcher.compute_ff_bytes()


class LLGuidanceGrammarBackend(BaseGrammarBackend):
    """Every kind. A grammar is ready in about a millisecond; the view of the vocabulary takes a second, once.

    Attributes:
        gate: whether masks are filled in threads.
    """

    name = "llguidance"
    kinds = frozenset(CONSTRAINT_KINDS)

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._source = LLGuidanceSource(context)
        self.gate = FillGate(min(4, usable_cores()))
        self._lock = threading.Lock()
        self._made: llguidance.LLTokenizer | None = None

    def _tokenizer(self) -> llguidance.LLTokenizer:
        with self._lock:
            if self._made is None:
                self._made = self._source.tokens()
            return self._made

    @cached_property
    def threads(self) -> llguidance.LLExecutor:
        """The library's own; made once, as that takes longer than most fills."""
        import llguidance

        return llguidance.LLExecutor(num_threads=self.gate.threads)

    def dispatch_regex(self, constraint: Constraint) -> Compiled:
        """The pattern's normal form."""
        return self._build(constraint, SchemaSource(self._source.regex(constraint.source)))

    def dispatch_json_schema(self, constraint: Constraint) -> Compiled:
        """The schema, with our blanks."""
        return self._build(constraint, self._source.schema(constraint))

    def dispatch_json_object(self, constraint: Constraint) -> Compiled:
        """The schema of any object."""
        return self.dispatch_json_schema(constraint)

    def dispatch_ebnf(self, constraint: Constraint) -> Compiled:
        """Translated to the library's notation."""
        return self._build(constraint, SchemaSource(self._source.ebnf(constraint.source)))

    def dispatch_structural_tag(self, constraint: Constraint) -> Compiled:
        """The older form (#4870), and of the newer one what says the same."""
        tag = read_either_form(constraint.source)
        if tag is None:
            raise UnsupportedConstraintError(
                "llguidance has no more of the `format` form than triggered_tags with JSON schemas inside",
                where="structural_tag.format", fix="use --backend xgrammar")
        return self._build(constraint, self._source.tag(tag))

    def _build(self, constraint: Constraint, source: SchemaSource) -> Compiled:
        """Make the matcher; what the library would get wrong is warned of, or refused when strict."""
        import llguidance

        warnings = warnings_of(DEVIATIONS, self.name, source.asked, strict=self.context.options.strict)
        matcher = llguidance.LLMatcher(self._tokenizer(), source.text, log_level=0)
        said = check_matcher(matcher, constraint.kind)
        grammar = LLGuidanceGrammar(self.context.vocabulary, self, matcher, len(source.text))
        check_start(grammar, constraint.kind)
        return Compiled(grammar, warnings + said)
