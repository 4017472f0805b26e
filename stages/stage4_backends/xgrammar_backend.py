"""The xgrammar backend: a pushdown automaton per grammar, masks mostly computed while compiling."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, assert_never

from torch import Tensor

from shared_runtime.constrain.grammars.start_check import check_start
from shared_runtime.constrain.grammars.structural_tag import read_structural_tag
from shared_runtime.constrain.libraries.known_deviations import warnings_of
from shared_runtime.constrain.libraries.xgrammar_compilers import XGrammarCompilers
from shared_runtime.constrain.libraries.xgrammar_source import START_RULE, XGrammarSource, own_errors
from shared_runtime.constrain.regex.regex_dialect import escape_choice
from shared_runtime.constrain.schema.json_schema_checks import SchemaSource
from shared_runtime.constrain.using.surrogates import SurrogateFilter
from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .base_grammar_backend import DEVIATIONS, BaseGrammarBackend, BaseGrammarObject, Compiled, JumpHelper

if TYPE_CHECKING:
    import xgrammar


class XGrammarGrammar(BaseGrammarObject):
    """A matcher. The stop set stays outside of it: `BaseGrammarObject` keeps that."""

    def __init__(self, vocabulary: Vocabulary, surrogates: SurrogateFilter, compiled: xgrammar.CompiledGrammar,
                 matcher: xgrammar.GrammarMatcher) -> None:
        super().__init__(vocabulary)
        self._surrogates = surrogates
        self._compiled = compiled
        self._matcher = matcher
        self._ids: list[int] = []

    @cached_property
    def nbytes(self) -> int:
        """The library's own count."""
        return self._compiled.memory_size_bytes

    @property
    def accepting(self) -> bool:
        """Whether the text so far is complete; more may follow."""
        return self._matcher.is_completed()

    def copy(self) -> XGrammarGrammar:
        """A matcher of its own at the beginning; 4 us."""
        matcher = self._matcher.fork()
        matcher.reset()
        return XGrammarGrammar(self.vocabulary, self._surrogates, self._compiled, matcher)

    def _accept_text(self, token_id: int) -> bool:
        taken: bool = self._matcher.accept_token(token_id)
        if taken:
            self._ids.append(token_id)
        return taken

    def _rollback_text(self, k: int) -> None:
        if k > len(self._ids):
            raise ValueError(f"cannot take back {k} of {len(self._ids)} tokens")
        self._matcher.rollback(k)
        del self._ids[-k:]

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """The library's mask, less what would be half of a surrogate pair."""
        if self.finished:
            raise ConstraintError("the grammar has ended: nothing may follow", where="mask")
        self._matcher.fill_next_token_bitmask(mask, row)
        self._surrogates.strip(mask[row], self.vocabulary.token_bytes[self._ids[-1]] if self._ids else b"")

    def try_jump_forward(self) -> JumpHelper | None:
        """The matcher's deterministic text. Inside a character the library says none, though bytes are forced."""
        text = self._matcher.find_jump_forward_string()
        return JumpHelper(b"", text) if text else None


class XGrammarGrammarBackend(BaseGrammarBackend):
    """Every kind. Compiling takes milliseconds for schemas, up to seconds for counted wildcards; no GIL is held."""

    name = "xgrammar"
    kinds = frozenset(CONSTRAINT_KINDS)

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._source = XGrammarSource(context)
        self._lock = threading.Lock()
        self._made: tuple[SurrogateFilter, XGrammarCompilers] | None = None

    def _library(self) -> tuple[SurrogateFilter, XGrammarCompilers]:
        """Made once, whichever thread asks first."""
        with self._lock:
            if self._made is None:
                self._made = (SurrogateFilter.of(self.context.vocabulary),
                              XGrammarCompilers.over(self._source.tokens()))
            return self._made

    def init_value(self, constraint: Constraint) -> Compiled:
        """Compile with the library; what it would silently drop is warned of, or refused when strict."""
        import xgrammar

        surrogates, compilers = self._library()
        source = self._written(constraint)
        warnings = warnings_of(DEVIATIONS, self.name, source.asked, strict=self.context.options.strict)
        with own_errors(constraint.kind):
            compiled = self._compile(compilers, constraint, source.text)
        grammar = XGrammarGrammar(self.context.vocabulary, surrogates, compiled, xgrammar.GrammarMatcher(compiled))
        check_start(grammar, constraint.kind)
        return Compiled(grammar, warnings)

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

    def _compile(self, compilers: XGrammarCompilers, constraint: Constraint,
                 text: str) -> xgrammar.CompiledGrammar:
        match constraint.kind:
            case "regex" | "choice":
                return compilers.eager.compile_regex(text)
            case "json_schema" | "json_object":
                return compilers.suited_to(text).compile_grammar(text)
            case "ebnf":
                return compilers.eager.compile_grammar(text, root_rule_name=START_RULE)
            case "structural_tag":
                return compilers.suited_to(text).compile_structural_tag(text)
            case kind:
                assert_never(kind)
