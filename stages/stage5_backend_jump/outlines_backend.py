"""The outlines backend: a regex becomes an index from states to tokens, a JSON schema becomes a regex first.

Since 935cda944b (#4032) nothing builds its jump map any more, and `outlines_jump_forward.py` is dead code: upstream for
good, here as long as `--backend-jump` is `none`.
"""

from __future__ import annotations

from torch import Tensor

from shared_runtime.constrain.libraries.outlines_index import IndexBuilder, OutlinesIndex
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .base_grammar_backend import BaseGrammarBackend, BaseGrammarObject, Compiled
from .outlines_jump_forward import OutlinesJumpForwardMap


class OutlinesGrammar(BaseGrammarObject):
    """A position in an index. The library has no batch call: a batch is filled one by one."""

    def __init__(self, vocabulary: Vocabulary, index: OutlinesIndex, jumps: OutlinesJumpForwardMap | None) -> None:
        super().__init__(vocabulary)
        self._index = index
        self._jumps = jumps
        self._guide = index.guide()
        self._ids: list[int] = []
        self._state = 0

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
        return OutlinesGrammar(self.vocabulary, self._index, self._jumps)

    def _accept_text(self, token_id: int) -> bool:
        try:
            self._guide.advance(token_id, return_tokens=False)
        except ValueError:
            return False
        if self._jumps is not None:
            self._state = self._jumps.dfa.walk(self._state, self.vocabulary.token_bytes[token_id])
        self._ids.append(token_id)
        return True

    def _rollback_text(self, k: int) -> None:
        """By replay from the start: the guide itself can only go 32 steps back (upstream: outlines has no rollback)."""
        if k > len(self._ids):
            raise ValueError(f"cannot take back {k} of {len(self._ids)} tokens")
        kept, self._ids, self._state, self._guide = self._ids[:-k], [], 0, self._index.guide()
        for token_id in kept:
            self._accept_text(token_id)

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """The index's bits; the one of the end means the stop set."""
        if self.finished:
            raise ConstraintError("the grammar has ended: nothing may follow", where="mask")
        self._index.write_mask(self._guide, mask[row], self.vocabulary.stop_ids)

    def forced_bytes(self) -> bytes:
        """What the jump map says, where one was built."""
        return b"" if self._jumps is None else self._jumps.forced(self._state)[0]


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
        jumps = None if self.context.options.backend_jump == "none" else OutlinesJumpForwardMap.of(index.dfa)
        return Compiled(OutlinesGrammar(self.context.vocabulary, index, jumps))
