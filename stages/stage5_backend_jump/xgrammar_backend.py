"""The xgrammar backend: a pushdown automaton per grammar, masks mostly computed while compiling.

New in this generation: a dispatch by kind, structural tags in both forms (#10691), and one call for a batch's masks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shared_runtime.config import usable_cores
from shared_runtime.constrain.grammars.start_check import check_start
from shared_runtime.constrain.grammars.structural_format import read_either_form
from shared_runtime.constrain.libraries.known_deviations import warnings_of
from shared_runtime.constrain.libraries.xgrammar_compilers import XGrammarCompilers
from shared_runtime.constrain.libraries.xgrammar_source import START_RULE, XGrammarSource, own_errors
from shared_runtime.constrain.schema.json_schema_checks import AskedSchema
from shared_runtime.constrain.using.draft_rows import keep_reached, text_part
from shared_runtime.constrain.using.fill_gate import FillGate
from shared_runtime.constrain.using.surrogates import SurrogateFilter
from shared_runtime.constraint import CONSTRAINT_KINDS, Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .base_grammar_backend import DEVIATIONS, BaseGrammarBackend, BaseGrammarObject, Compiled

if TYPE_CHECKING:
    import xgrammar


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

    def fill_vocab_mask_drafted(self, mask: Tensor, row: int, draft: Sequence[int]) -> int:
        """The library's walk over a tree of drafts; ours is a chain, whose last node has no child."""
        text = text_part(draft, self.vocabulary)
        if not text or self.finished:
            return super().fill_vocab_mask_drafted(mask, row, draft)
        rows = mask[row:row + len(text) + 1]
        child = torch.tensor([*range(1, len(rows)), -1])
        self._matcher.traverse_draft_tree(child, torch.full_like(child, -1), torch.tensor([0, *text]), rows)
        for words, before in zip(rows, [self._last, *map(self.vocabulary.token_bytes.__getitem__, text)], strict=True):
            self._filler.surrogates.strip(words, before)
        return keep_reached(mask, row, draft, self.vocabulary)

    def forced_bytes(self) -> bytes:
        """The matcher's deterministic text. Inside a character it has none, and names the tokens instead."""
        text = self._matcher.find_jump_forward_string().encode()
        return text or self.vocabulary.decode(self._matcher.find_jump_forward_tokens())


class XGrammarGrammarBackend(BaseGrammarBackend):
    """Every kind. Compiling takes milliseconds for schemas, up to seconds for counted wildcards; no GIL is held."""

    name = "xgrammar"
    kinds = frozenset(CONSTRAINT_KINDS)

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._source = XGrammarSource(context)
        self._lock = threading.Lock()
        self._made: tuple[XGrammarFiller, XGrammarCompilers] | None = None

    def _library(self) -> tuple[XGrammarFiller, XGrammarCompilers]:
        """Made once, whichever thread asks first."""
        with self._lock:
            if self._made is None:
                filler = XGrammarFiller(SurrogateFilter.of(self.context.vocabulary), FillGate(min(4, usable_cores())))
                self._made = (filler, XGrammarCompilers.over(self._source.tokens()))
            return self._made

    def dispatch_regex(self, constraint: Constraint) -> Compiled:
        """The pattern's normal form: written out, nothing in it means another thing to the library."""
        text = self._source.regex(constraint.source)
        return self._build(constraint, lambda compilers: compilers.eager.compile_regex(text))

    def dispatch_json_schema(self, constraint: Constraint) -> Compiled:
        """The schema, with our blanks."""
        source = self._source.schema(constraint)
        return self._build(constraint, lambda compilers:
                           compilers.suited_to(source.text).compile_grammar(source.text), source.asked)

    def dispatch_json_object(self, constraint: Constraint) -> Compiled:
        """The schema of any object."""
        return self.dispatch_json_schema(constraint)

    def dispatch_ebnf(self, constraint: Constraint) -> Compiled:
        """The library's own notation."""
        text = self._source.ebnf(constraint.source)
        return self._build(constraint, lambda compilers:
                           compilers.eager.compile_grammar(text, root_rule_name=START_RULE))

    def dispatch_structural_tag(self, constraint: Constraint) -> Compiled:
        """Either form; the library itself reads only the newer one."""
        tag = read_either_form(constraint.source)
        source = self._source.format_tag(constraint) if tag is None else self._source.tag(tag)
        return self._build(constraint, lambda compilers:
                           compilers.suited_to(source.text).compile_structural_tag(source.text), source.asked)

    def _build(self, constraint: Constraint, build: Callable[[XGrammarCompilers], xgrammar.CompiledGrammar],
               asked: Sequence[AskedSchema] = ()) -> Compiled:
        """Compile; what the library would silently drop of the schemas that are asked for is warned of, or refused."""
        import xgrammar

        warnings = warnings_of(DEVIATIONS, self.name, asked, strict=self.context.options.strict)
        filler, compilers = self._library()
        with own_errors(constraint.kind):
            compiled = build(compilers)
        grammar = XGrammarGrammar(self.context.vocabulary, filler, compiled, xgrammar.GrammarMatcher(compiled))
        check_start(grammar, constraint.kind)
        return Compiled(grammar, warnings)
