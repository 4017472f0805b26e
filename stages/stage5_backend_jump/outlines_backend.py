"""The outlines backend: a regex becomes an index from states to tokens, a JSON schema becomes a regex first.

Since 935cda944b (#4032) nothing builds its jump map any more; `outlines_jump_forward.py` is dead code, as upstream.
"""

from __future__ import annotations

from torch import Tensor

from shared_runtime.constrain.outlines_index import IndexBuilder, OutlinesIndex
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .base_grammar_backend import BaseGrammarBackend, BaseGrammarObject, Compiled


class OutlinesGrammar(BaseGrammarObject):
    """A position in an index. The library has no batch call: a batch is filled one by one."""

    def __init__(self, vocabulary: Vocabulary, index: OutlinesIndex) -> None:
        super().__init__(vocabulary)
        self._index = index
        self._guide = index.guide()
        self._ids: list[int] = []

    @property
    def nbytes(self) -> int:
        """An estimate: the library does not say how large an index is."""
        return self._index.nbytes

    @property
    def accepting(self) -> bool:
        """Whether the text so far is complete."""
        return self._index.accepting(self._guide)

    def copy(self) -> OutlinesGrammar:
        """A new guide over the same index."""
        return OutlinesGrammar(self.vocabulary, self._index)

    def _accept_text(self, token_id: int) -> bool:
        try:
            self._guide.advance(token_id, return_tokens=False)
        except ValueError:
            return False
        self._ids.append(token_id)
        return True

    def _rollback_text(self, k: int) -> None:
        """By replay from the start: the guide itself can only go 32 steps back (upstream: outlines has no rollback)."""
        if k > len(self._ids):
            raise ValueError(f"cannot take back {k} of {len(self._ids)} tokens")
        kept, self._ids, self._guide = self._ids[:-k], [], self._index.guide()
        for token_id in kept:
            self._accept_text(token_id)

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """The index's bits; the one of the end means the stop set."""
        if self.finished:
            raise ConstraintError("the grammar has ended: nothing may follow", where="mask")
        self._index.write_mask(self._guide, mask[row], self.vocabulary.stop_ids)


class OutlinesGrammarBackend(BaseGrammarBackend):
    """Regexes, choices, and the schemas that a regex can hold. Everything else is refused, nothing is dropped."""

    name = "outlines"
    kinds = frozenset({"regex", "choice", "json_schema"})

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._builder = IndexBuilder(context)

    def dispatch_regex(self, constraint: Constraint) -> Compiled:
        """The pattern's index."""
        return self._of(self._builder.build(constraint.source))

    def dispatch_json_schema(self, constraint: Constraint) -> Compiled:
        """The index of the schema's pattern (a refactoring lost the return after an error here: museum row 41)."""
        return self._of(self._builder.build_for_schema(constraint.source))

    def _of(self, index: OutlinesIndex) -> Compiled:
        return Compiled(OutlinesGrammar(self.context.vocabulary, index))
