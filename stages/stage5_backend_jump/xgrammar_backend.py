"""The xgrammar backend: a pushdown automaton per grammar, masks mostly computed while compiling.

New in this generation: a dispatch by kind, structural tags in both forms (#10691), and one call for a batch's masks.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict

from torch import Tensor

from shared_runtime.config import usable_cores
from shared_runtime.constrain.fill_gate import FillGate
from shared_runtime.constrain.json_schema_checks import read_schema, with_plain_patterns
from shared_runtime.constrain.known_deviations import warnings_of
from shared_runtime.constrain.regex_dialect import normalise
from shared_runtime.constrain.regex_tree import render
from shared_runtime.constrain.spellable import Speller
from shared_runtime.constrain.structural_format import in_structures_form, replace_schemas
from shared_runtime.constrain.structural_tag import StructuralTag, read_structural_tag
from shared_runtime.constrain.surrogates import SurrogateFilter
from shared_runtime.constrain.whitespace import MOST_BLANKS
from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint
from shared_runtime.errors import ConstraintError, GrammarSyntaxError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .base_grammar_backend import DEVIATIONS, BaseGrammarBackend, BaseGrammarObject, Compiled, JumpHelper
from .json_schema_validation import validate_json_schema

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


@dataclass(frozen=True)
class XGrammarFiller:
    """What all grammars of a backend fill their masks with."""

    surrogates: SurrogateFilter
    gate: FillGate

    @cached_property
    def _batch(self) -> dict[bool, xgrammar.BatchGrammarMatcher]:
        import xgrammar

        return {False: xgrammar.BatchGrammarMatcher(max_threads=1),
                True: xgrammar.BatchGrammarMatcher(max_threads=self.gate.threads)}

    def fill(self, matchers: list[xgrammar.GrammarMatcher], mask: Tensor, rows: list[int]) -> None:
        """The rows in one call, which lets go of the GIL once, and not once a row."""
        self.gate.run(len(rows), lambda parallel:
                      self._batch[parallel].batch_fill_next_token_bitmask(matchers, mask, rows))
        if len(rows) == mask.shape[0]:
            self.surrogates.strip(mask, b"")
        else:
            block = mask[rows]
            self.surrogates.strip(block, b"")
            mask[rows] = block


class XGrammarGrammar(BaseGrammarObject):
    """A matcher. The stop set stays outside of it: `BaseGrammarObject` keeps that."""

    def __init__(self, vocabulary: Vocabulary, filler: XGrammarFiller, compiled: xgrammar.CompiledGrammar,
                 matcher: xgrammar.GrammarMatcher) -> None:
        super().__init__(vocabulary)
        self._filler = filler
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
        return XGrammarGrammar(self.vocabulary, self._filler, self._compiled, matcher)

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

    @property
    def _last(self) -> bytes:
        return self.vocabulary.token_bytes[self._ids[-1]] if self._ids else b""

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """The library's mask, less what would be half of a surrogate pair."""
        if self.finished:
            raise ConstraintError("the grammar has ended: nothing may follow", where="mask")
        self._matcher.fill_next_token_bitmask(mask, row)
        self._filler.surrogates.strip(mask[row], self._last)

    def fill_vocab_mask_batched(self, entries: Sequence[tuple[int, BaseGrammarObject]], mask: Tensor) -> None:
        """By the library's batch call, in threads where that pays; one by one when a grammar is of another kind."""
        rows = [row for row, _ in entries]
        grammars = [one for _, one in entries if isinstance(one, XGrammarGrammar) and not one.finished]
        if len(grammars) < max(2, len(rows)):
            super().fill_vocab_mask_batched(entries, mask)
            return
        self._filler.fill([grammar._matcher for grammar in grammars], mask, rows)
        for row, grammar in zip(rows, grammars, strict=True):
            if grammar._last.endswith(b"\xed"):
                self._filler.surrogates.strip(mask[row], grammar._last)

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
        self._made: tuple[XGrammarFiller, xgrammar.GrammarCompiler] | None = None

    def _library(self) -> tuple[XGrammarFiller, xgrammar.GrammarCompiler]:
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
                # The engine's stop set, not the tokenizer's own (museum row 48, upstream until #8422).
                info = xgrammar.TokenizerInfo(spelled, xgrammar.VocabType.RAW, vocab_size=vocabulary.width,
                                              stop_token_ids=sorted(vocabulary.stop_ids))
                self._made = (XGrammarFiller(SurrogateFilter.of(vocabulary), FillGate(min(4, usable_cores()))),
                              xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False))
            return self._made

    def dispatch_regex(self, constraint: Constraint) -> Compiled:
        """The pattern's normal form: written out, nothing in it means another thing to the library."""
        tree = self._speller.restrict(normalise(constraint.source).tree)
        text = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", render(tree, negated_classes=False))
        return self._build(constraint, lambda compiler: compiler.compile_regex(text))

    def dispatch_json_schema(self, constraint: Constraint) -> Compiled:
        """The schema, with our blanks."""
        schema = self._plain(read_schema(constraint))
        return self._build(constraint, lambda compiler: compiler.compile_json_schema(schema, **self._blanks()))

    def dispatch_json_object(self, constraint: Constraint) -> Compiled:
        """The schema of any object."""
        return self.dispatch_json_schema(constraint)

    def dispatch_ebnf(self, constraint: Constraint) -> Compiled:
        """The library's own notation."""
        source = f"{constraint.source}\n{_START} ::= root\n"
        return self._build(constraint, lambda compiler: compiler.compile_grammar(source, root_rule_name=_START))

    def dispatch_structural_tag(self, constraint: Constraint) -> Compiled:
        """Either form; the library itself reads only the newer one."""
        older = in_structures_form(constraint)
        source = constraint.source if older is None else _newer_form(read_structural_tag(older.source))
        schemas: list[Constraint] = []
        grammars = replace_schemas(source, lambda schema: self._as_grammar(schema, schemas))
        return self._build(constraint, lambda compiler: compiler.compile_structural_tag(grammars), *schemas)

    def _build(self, constraint: Constraint, build: Callable[[xgrammar.GrammarCompiler], xgrammar.CompiledGrammar],
               *schemas: Constraint) -> Compiled:
        """Compile; what the library would silently drop of the constraint or of `schemas` is warned of, or refused."""
        import xgrammar

        asked = schemas or (constraint,)
        warnings = [text for one in asked
                    for text in warnings_of(DEVIATIONS, self.name, one, strict=self.context.options.strict)]
        filler, compiler = self._library()
        with _errors_of(constraint):
            compiled = build(compiler)
        grammar = XGrammarGrammar(self.context.vocabulary, filler, compiled, xgrammar.GrammarMatcher(compiled))
        return Compiled(grammar, tuple(dict.fromkeys(warnings)))

    def _as_grammar(self, schema: object, found: list[Constraint]) -> dict[str, object]:
        """A tag's schema as the library's grammar, which keeps our blanks; noted in `found`."""
        import xgrammar

        constraint = Constraint.json_schema(json.dumps(schema, ensure_ascii=False))
        validate_json_schema(constraint.source)
        found.append(constraint)
        with _errors_of(constraint):
            grammar = xgrammar.Grammar.from_json_schema(self._plain(schema), **self._blanks())
        return {"type": "grammar", "grammar": str(grammar)}

    def _plain(self, schema: object) -> str:
        return json.dumps(with_plain_patterns(schema, self._speller), ensure_ascii=False)

    def _blanks(self) -> _Blanks:
        if self.context.options.whitespace == "compact":
            return {"any_whitespace": False, "separators": (", ", ": ")}
        return {"any_whitespace": True, "max_whitespace_cnt": MOST_BLANKS}


@contextmanager
def _errors_of(constraint: Constraint) -> Iterator[None]:
    """The library's errors as ours."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise GrammarSyntaxError(f"xgrammar refuses the grammar: {_NOISE.sub('', str(error))}",
                                 where=constraint.kind) from None


def _newer_form(tag: StructuralTag) -> str:
    return json.dumps({"type": "structural_tag", "format": {
        "type": "triggered_tags", "triggers": tag.triggers,
        "tags": [{"begin": one.begin, "end": one.end,
                  "content": {"type": "json_schema", "json_schema": json.loads(one.schema)}}
                 for one in tag.structures]}}, ensure_ascii=False)
