"""The outlines backend: a regex becomes an index from states to tokens, a JSON schema becomes a regex first.

What Outlines itself adds to outlines-core is not needed for that, so outlines-core is asked directly.
"""

from __future__ import annotations

from typing import assert_never

from torch import Tensor

from shared_runtime.constrain.libraries.outlines_index import IndexBuilder, OutlinesIndex
from shared_runtime.constrain.regex.regex_dialect import escape_choice
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .base_grammar_backend import BaseGrammarBackend, BaseGrammarObject, Compiled, JumpHelper
from .outlines_jump_forward import OutlinesJumpForwardMap


class OutlinesGrammar(BaseGrammarObject):
    """A guide, and beside it the state of our own automaton: the two number their states differently."""

    def __init__(self, vocabulary: Vocabulary, index: OutlinesIndex, jumps: OutlinesJumpForwardMap) -> None:
        super().__init__(vocabulary)
        self._index = index
        self._jumps = jumps
        self._guide = index.guide()
        self._ids: list[int] = []
        self._state = 0

    @property
    def nbytes(self) -> int:
        """An estimate: the library does not say how large an index is. The map's automaton is the index's."""
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
        self._state = self._jumps.dfa.walk(self._state, self.vocabulary.token_bytes[token_id])
        self._ids.append(token_id)
        return True

    def _rollback_text(self, k: int) -> None:
        """By replay from the start: the guide itself can only go 32 steps back."""
        if k > len(self._ids):
            raise ValueError(f"cannot take back {k} of {len(self._ids)} tokens")
        kept, self._ids, self._state, self._guide = self._ids[:-k], [], 0, self._index.guide()
        for token_id in kept:
            self._accept_text(token_id)

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """The index's bits; the one of `END` means the stop set."""
        if self.finished:
            raise ConstraintError("the grammar has ended: nothing may follow", where="mask")
        self._index.write_mask(self._guide, mask[row], self.vocabulary.stop_ids)

    def try_jump_forward(self) -> JumpHelper | None:
        """What the map says, up to a character that it ends inside."""
        return JumpHelper.of(*self._jumps.forced(self._state))


class OutlinesGrammarBackend(BaseGrammarBackend):
    """Regexes, choices, and the schemas that a regex can hold. Everything else is refused, nothing is dropped."""

    name = "outlines"
    kinds = frozenset({"regex", "choice", "json_schema"})

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._builder = IndexBuilder(context)

    def init_value(self, constraint: Constraint) -> Compiled:
        """The index, and the jump map from the automaton that says beforehand how large the index will be."""
        index = self._index(constraint)
        return Compiled(OutlinesGrammar(self.context.vocabulary, index, OutlinesJumpForwardMap.of(index.dfa)))

    def _index(self, constraint: Constraint) -> OutlinesIndex:
        match constraint.kind:
            case "regex":
                return self._builder.build(constraint.source)
            case "choice":
                return self._builder.build(escape_choice(constraint.choices))
            case "json_schema":
                return self._builder.build_for_schema(constraint.source)
            case "json_object" | "ebnf" | "structural_tag":
                raise ConstraintError(f"a regex cannot hold {constraint.kind}", where="constraint")
            case kind:
                assert_never(kind)
