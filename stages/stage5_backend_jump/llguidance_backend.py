"""The llguidance backend: derivatives of regexes and an Earley parser, no compile worth the name (#3298, 2025-02).

Where text is forced, its mask holds one token only: the one that its own tokenization of the text would take. So the
model's spelling is kept without any jump, and the mask is smaller than the language; see `deviations.toml`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from shared_runtime.config import usable_cores
from shared_runtime.constrain.fill_gate import FillGate
from shared_runtime.constrain.gbnf import gbnf_to_lark
from shared_runtime.constrain.json_schema_checks import read_schema
from shared_runtime.constrain.known_deviations import warnings_of
from shared_runtime.constrain.regex_dialect import normalise
from shared_runtime.constrain.regex_tree import render
from shared_runtime.constrain.spellable import Speller
from shared_runtime.constrain.structural_format import in_structures_form
from shared_runtime.constrain.structural_tag import StructuralTag, read_structural_tag
from shared_runtime.constrain.token_view import TokenView
from shared_runtime.constrain.whitespace import BLANKS
from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint
from shared_runtime.errors import ConstraintError, GrammarSyntaxError, UnsupportedConstraintError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .base_grammar_backend import DEVIATIONS, BaseGrammarBackend, BaseGrammarObject, Compiled, JumpHelper
from .json_schema_validation import validate_json_schema
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
            raise ConstraintError(f"llguidance cannot start again: {_first_line(matcher.get_error())}", where="copy")
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
            raise ConstraintError(f"llguidance cannot go back: {_first_line(self._matcher.get_error())}",
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
            raise ConstraintError(f"llguidance: {_first_line(self._matcher.get_error())}", where="mask")
        filter_tokens(mask, row, self.vocabulary.stop_ids, allowed=self.accepting, reset=False)

    def try_jump_forward(self) -> JumpHelper | None:
        """The forced bytes: the rest of a character, and the whole characters after it."""
        return JumpHelper.of(b"" if self._matcher.is_stopped() else self._matcher.compute_ff_bytes())


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0] or "no reason given"


class LLGuidanceGrammarBackend(BaseGrammarBackend):
    """Every kind. A grammar is ready in about a millisecond; the view of the vocabulary takes a second, once.

    Attributes:
        gate: whether masks are filled in threads.
    """

    name = "llguidance"
    kinds = frozenset(CONSTRAINT_KINDS)

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._speller = Speller(context.vocabulary)
        self.gate = FillGate(min(4, usable_cores()))
        self._lock = threading.Lock()
        self._made: llguidance.LLTokenizer | None = None

    def _tokenizer(self) -> llguidance.LLTokenizer:
        with self._lock:
            if self._made is None:
                import llguidance

                vocabulary = self.context.vocabulary
                tokens = TokenView(vocabulary, self.context.tokenizer)
                self._made = llguidance.LLTokenizer(llguidance.TokenizerWrapper(tokens), n_vocab=vocabulary.width,
                                                    eos_token=sorted(vocabulary.stop_ids) or None)
            return self._made

    @cached_property
    def threads(self) -> llguidance.LLExecutor:
        """The library's own; made once, as that takes longer than most fills."""
        import llguidance

        return llguidance.LLExecutor(num_threads=self.gate.threads)

    def dispatch_regex(self, constraint: Constraint) -> Compiled:
        """The pattern's normal form."""
        import llguidance

        text = render(self._speller.restrict(normalise(constraint.source).tree), negated_classes=False)
        return self._build(constraint, llguidance.LLMatcher.grammar_from_regex(text))

    def dispatch_json_schema(self, constraint: Constraint) -> Compiled:
        """The schema, with our blanks."""
        import llguidance

        schema = json.dumps(self._spaced(read_schema(constraint)))
        return self._build(constraint, llguidance.LLMatcher.grammar_from_json_schema(schema))

    def dispatch_json_object(self, constraint: Constraint) -> Compiled:
        """The schema of any object."""
        return self.dispatch_json_schema(constraint)

    def dispatch_ebnf(self, constraint: Constraint) -> Compiled:
        """Translated to the library's notation."""
        import llguidance

        return self._build(constraint, llguidance.LLMatcher.grammar_from_lark(gbnf_to_lark(constraint.source)))

    def dispatch_structural_tag(self, constraint: Constraint) -> Compiled:
        """The older form (#4870), and of the newer one what says the same."""
        import llguidance

        older = in_structures_form(constraint)
        if older is None:
            raise UnsupportedConstraintError(
                "llguidance has no more of the `format` form than triggered_tags with JSON schemas inside",
                where="structural_tag.format", fix="use --backend xgrammar")
        tag = read_structural_tag(older.source)
        for one in tag.structures:
            validate_json_schema(one.schema)
        return self._build(older, llguidance.LLMatcher.grammar_from_lark(self._tag_grammar(tag)))

    def _build(self, constraint: Constraint, grammar: str) -> Compiled:
        """Make the matcher; it raises nothing, so it is asked."""
        import llguidance

        warnings = warnings_of(DEVIATIONS, self.name, constraint, strict=self.context.options.strict)
        matcher = llguidance.LLMatcher(self._tokenizer(), grammar, log_level=0)
        if matcher.is_error():
            raise GrammarSyntaxError(f"llguidance refuses the grammar: {_first_line(matcher.get_error())}",
                                     where=constraint.kind)
        said = tuple(f"llguidance: {_first_line(text)}" for text in matcher.get_grammar_warnings())
        return Compiled(LLGuidanceGrammar(self.context.vocabulary, self, matcher, len(grammar)), warnings + said)

    def _spaced(self, schema: dict[str, object] | bool) -> dict[str, object]:
        """The schema with our whitespace option written into it, over what a request may have put there."""
        options: dict[str, object] = {"whitespace_flexible": False}
        if self.context.options.whitespace == "compact":
            options |= {"item_separator": ", ", "key_separator": ": "}
        else:
            options |= {"whitespace_pattern": BLANKS}
        if isinstance(schema, bool):
            schema = {} if schema else {"not": {}}
        return {**schema, "x-guidance": options}

    def _tag_grammar(self, tag: StructuralTag) -> str:
        import llguidance

        return llguidance.StructTag.to_grammar(
            [llguidance.StructTag(trigger=one.trigger, begin=one.begin, end=one.end,
                                  grammar=self._spaced(json.loads(one.schema))) for one in tag.structures],
            assume_special=False)  # else a trigger like "<tool>" would have to be a control token
