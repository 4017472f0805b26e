"""The llguidance backend: derivatives of regexes and an Earley parser, no compile worth the name (#3298, 2025-02).

Where text is forced, its mask holds one token only: the one that its own tokenization of the text would take. So the
model's spelling is kept without any jump, and the mask is smaller than the language; see `deviations.toml`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, assert_never

from torch import Tensor

from shared_runtime.constrain.grammars.start_check import check_start
from shared_runtime.constrain.grammars.structural_tag import read_structural_tag
from shared_runtime.constrain.libraries.known_deviations import warnings_of
from shared_runtime.constrain.libraries.llguidance_source import LLGuidanceSource, check_matcher, first_line
from shared_runtime.constrain.regex.regex_dialect import escape_choice
from shared_runtime.constrain.schema.json_schema_checks import SchemaSource
from shared_runtime.constrain.using.bitmask import set_bit
from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .base_grammar_backend import DEVIATIONS, BaseGrammarBackend, BaseGrammarObject, Compiled, JumpHelper

if TYPE_CHECKING:
    import llguidance

# 100 schemas of ten properties, after their first mask, took 6.4 MB; the library does not say.
_BYTES_PER_MATCHER = 64 << 10
_BYTES_PER_CHARACTER = 16
_DEAD_END = ("NoExtension", "NoExtensionBias")


class LLGuidanceGrammar(BaseGrammarObject):
    """A matcher. A token is asked about before it is consumed: a wrong one would poison the matcher for good."""

    def __init__(self, vocabulary: Vocabulary, matcher: llguidance.LLMatcher, source_length: int) -> None:
        super().__init__(vocabulary)
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
        return LLGuidanceGrammar(self.vocabulary, matcher, self._source_length)

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
        if self._matcher.is_error() and self._matcher.stop_reason() not in _DEAD_END:
            raise ConstraintError(f"llguidance: {first_line(self._matcher.get_error())}", where="mask")
        accepting = self.accepting
        for stop in self.vocabulary.stop_ids:
            set_bit(words, stop, accepting)

    def try_jump_forward(self) -> JumpHelper | None:
        """The forced bytes: the rest of a character, and the whole characters after it."""
        return JumpHelper.of(b"" if self._matcher.is_stopped() else self._matcher.compute_ff_bytes())


class LLGuidanceGrammarBackend(BaseGrammarBackend):
    """Every kind. A grammar is ready in about a millisecond; the view of the vocabulary takes a second, once."""

    name = "llguidance"
    kinds = frozenset(CONSTRAINT_KINDS)

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._source = LLGuidanceSource(context)
        self._lock = threading.Lock()
        self._made: llguidance.LLTokenizer | None = None

    def _tokenizer(self) -> llguidance.LLTokenizer:
        with self._lock:
            if self._made is None:
                self._made = self._source.tokens()
            return self._made

    def init_value(self, constraint: Constraint) -> Compiled:
        """Make the matcher; what the library would get wrong is warned of, or refused when strict."""
        import llguidance

        source = self._written(constraint)
        warnings = warnings_of(DEVIATIONS, self.name, source.asked, strict=self.context.options.strict)
        matcher = llguidance.LLMatcher(self._tokenizer(), source.text, log_level=0)
        said = check_matcher(matcher, constraint.kind)
        grammar = LLGuidanceGrammar(self.context.vocabulary, matcher, len(source.text))
        check_start(grammar, constraint.kind)
        return Compiled(grammar, warnings + said)

    def _written(self, constraint: Constraint) -> SchemaSource:
        match constraint.kind:
            case "regex" | "choice":
                return SchemaSource(self._source.regex(constraint.source if constraint.kind == "regex"
                                                       else escape_choice(constraint.choices)))
            case "json_schema" | "json_object":
                return self._source.schema(constraint)
            case "ebnf":
                return SchemaSource(self._source.ebnf(constraint.source))
            case "structural_tag":
                return self._source.tag(read_structural_tag(constraint.source))
            case kind:
                assert_never(kind)
