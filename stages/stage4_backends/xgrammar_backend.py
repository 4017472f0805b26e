"""The xgrammar backend: a pushdown automaton per grammar, masks mostly computed while compiling."""

from __future__ import annotations

import json
import re
import threading
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict, assert_never

from torch import Tensor

from shared_runtime.constrain.json_schema_checks import read_schema, with_plain_patterns
from shared_runtime.constrain.known_deviations import warnings_of
from shared_runtime.constrain.regex_dialect import escape_choice, normalise
from shared_runtime.constrain.regex_tree import render
from shared_runtime.constrain.spellable import Speller
from shared_runtime.constrain.structural_tag import StructuralTag, read_structural_tag
from shared_runtime.constrain.surrogates import SurrogateFilter
from shared_runtime.constrain.whitespace import MOST_BLANKS
from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint
from shared_runtime.errors import ConstraintError, GrammarSyntaxError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .base_grammar_backend import DEVIATIONS, BaseGrammarBackend, BaseGrammarObject, Compiled, JumpHelper

if TYPE_CHECKING:
    import xgrammar

# The library's errors begin with the time and the line of its own source.
_NOISE = re.compile(r"^\[[\d:]+\] \S+: |Check failed: \(.*?\) is false: |\n$")

# Neither NUL nor a line end in a class may stand as it is, and `\x0a` would swallow more hexadecimal digits.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

# A rule above `root`: where `root` contains itself, its masks lack tokens that end it twice (`))`).
_START = "the-whole-text"


class _Blanks(TypedDict, total=False):
    any_whitespace: bool
    separators: tuple[str, str]
    max_whitespace_cnt: int


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
        self._speller = Speller(context.vocabulary)
        self._lock = threading.Lock()
        self._made: tuple[SurrogateFilter, xgrammar.GrammarCompiler] | None = None

    def _library(self) -> tuple[SurrogateFilter, xgrammar.GrammarCompiler]:
        """Made once, whichever thread asks first: 30 ms for 49,152 tokens.

        Control and stop tokens go in empty; the library would match them by their printed text otherwise. Its own
        cache stays off: ours has the refusals too, and one limit for all backends.
        """
        with self._lock:
            if self._made is None:
                import xgrammar

                vocabulary = self.context.vocabulary
                hidden = vocabulary.control_ids | vocabulary.stop_ids
                spelled = [b"" if token_id in hidden else text
                           for token_id, text in enumerate(vocabulary.token_bytes)]
                info = xgrammar.TokenizerInfo(spelled, xgrammar.VocabType.RAW, vocab_size=vocabulary.width,
                                              stop_token_ids=sorted(vocabulary.stop_ids))
                self._made = (SurrogateFilter.of(vocabulary),
                              xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False))
            return self._made

    def init_value(self, constraint: Constraint) -> Compiled:
        """Compile with the library; what it would silently drop is warned of, or refused when strict."""
        import xgrammar

        warnings = warnings_of(DEVIATIONS, self.name, constraint, strict=self.context.options.strict)
        surrogates, compiler = self._library()
        try:
            compiled = self._compile(compiler, constraint)
        except (RuntimeError, ValueError) as error:
            raise GrammarSyntaxError(f"xgrammar refuses the grammar: {_NOISE.sub('', str(error))}",
                                     where=constraint.kind) from None
        grammar = XGrammarGrammar(self.context.vocabulary, surrogates, compiled, xgrammar.GrammarMatcher(compiled))
        return Compiled(grammar, warnings)

    def _compile(self, compiler: xgrammar.GrammarCompiler, constraint: Constraint) -> xgrammar.CompiledGrammar:
        match constraint.kind:
            case "regex" | "choice":
                source = constraint.source if constraint.kind == "regex" else escape_choice(constraint.choices)
                tree = self._speller.restrict(normalise(source).tree)
                return compiler.compile_regex(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}",
                                                           render(tree, negated_classes=False)))
            case "json_schema" | "json_object":
                return compiler.compile_json_schema(self._plain(read_schema(constraint)), **self._blanks())
            case "ebnf":
                return compiler.compile_grammar(f"{constraint.source}\n{_START} ::= root\n", root_rule_name=_START)
            case "structural_tag":
                return compiler.compile_structural_tag(self._format_of(read_structural_tag(constraint.source)))
            case kind:
                assert_never(kind)

    def _plain(self, schema: object) -> str:
        return json.dumps(with_plain_patterns(schema, self._speller), ensure_ascii=False)

    def _blanks(self) -> _Blanks:
        if self.context.options.whitespace == "compact":
            return {"any_whitespace": False, "separators": (", ", ": ")}
        return {"any_whitespace": True, "max_whitespace_cnt": MOST_BLANKS}

    def _format_of(self, tag: StructuralTag) -> str:
        """The tag in the `format` form, the only one that the library still reads; schemas as grammars, for our
        blanks."""
        import xgrammar

        grammars = [str(xgrammar.Grammar.from_json_schema(self._plain(json.loads(one.schema)), **self._blanks()))
                    for one in tag.structures]
        return json.dumps({"type": "structural_tag", "format": {
            "type": "triggered_tags", "triggers": tag.triggers,
            "tags": [{"begin": one.begin, "end": one.end, "content": {"type": "grammar", "grammar": grammar}}
                     for one, grammar in zip(tag.structures, grammars, strict=True)]}}, ensure_ascii=False)
