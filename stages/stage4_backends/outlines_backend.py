"""The outlines backend: a regex becomes an index from states to tokens, a JSON schema becomes a regex first.

What Outlines itself adds to outlines-core is not needed for that, so outlines-core is asked directly.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import cached_property
from typing import assert_never

import numpy as np
from torch import Tensor

from shared_runtime.constrain.bitmask import pack_bits
from shared_runtime.constrain.byte_automaton import DEAD, ByteAutomaton, spell_in_utf8
from shared_runtime.constrain.char_fsm import make_deterministic_fsm
from shared_runtime.constrain.compile_budget import Budget
from shared_runtime.constrain.regex_dialect import escape_choice, normalise
from shared_runtime.constrain.regex_index import (
    END,
    make_guide,
    make_index,
    make_vocabulary,
    schema_regex,
)
from shared_runtime.constrain.regex_tree import Node, render
from shared_runtime.constrain.spellable import Speller
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, GrammarTimeoutError
from shared_runtime.policy import StageContext
from shared_runtime.vocabulary import Vocabulary

from .base_grammar_backend import BaseGrammarBackend, BaseGrammarObject, Compiled, JumpHelper
from .outlines_jump_forward import OutlinesJumpForwardMap

MAX_PAIRS = 20_000_000
"""Most (state, allowed token) pairs of an index. Its build cannot be stopped: `.{0,200}` has 10 million and takes 2 s,
`.{0,2000}` would take 20 s and 2.4 GB."""
_BYTES_PER_PAIR = 24


@dataclass(frozen=True)
class OutlinesIndex:
    """What the copies of a grammar share.

    Attributes:
        index: the library's. end_id: the id of `END` in it. jumps: our own automaton beside it.
        pairs: at most so many (state, token) pairs are in the index.
    """

    index: object
    end_id: int
    jumps: OutlinesJumpForwardMap
    pairs: int


class OutlinesGrammar(BaseGrammarObject):
    """A guide, and beside it the state of our own automaton: the two number their states differently."""

    def __init__(self, vocabulary: Vocabulary, shared: OutlinesIndex) -> None:
        super().__init__(vocabulary)
        self._shared = shared
        self._guide = make_guide(shared.index)
        self._ids: list[int] = []
        self._state = 0

    @property
    def nbytes(self) -> int:
        """An estimate: the library does not say how large an index is."""
        return _BYTES_PER_PAIR * self._shared.pairs + self._shared.jumps.nbytes

    @property
    def accepting(self) -> bool:
        """Whether the text so far is complete."""
        return self._guide.accepts_tokens([self._shared.end_id])

    def copy(self) -> OutlinesGrammar:
        """A new guide over the same index."""
        return OutlinesGrammar(self.vocabulary, self._shared)

    def _accept_text(self, token_id: int) -> bool:
        try:
            self._guide.advance(token_id, return_tokens=False)
        except ValueError:
            return False
        self._state = self._shared.jumps.dfa.walk(self._state, self.vocabulary.token_bytes[token_id])
        self._ids.append(token_id)
        return True

    def _rollback_text(self, k: int) -> None:
        """By replay from the start: the guide itself can only go 32 steps back."""
        if k > len(self._ids):
            raise ValueError(f"cannot take back {k} of {len(self._ids)} tokens")
        kept, self._ids, self._state, self._guide = self._ids[:-k], [], 0, make_guide(self._shared.index)
        for token_id in kept:
            self._accept_text(token_id)

    def fill_vocab_mask(self, mask: Tensor, row: int) -> None:
        """The index's bits; the one of `END` means the stop set."""
        if self.finished:
            raise ConstraintError("the grammar has ended: nothing may follow", where="mask")
        words = np.zeros(self._shared.end_id // 32 + 2, dtype=np.int32)
        self._guide.write_mask_into(words.ctypes.data, words.size, 4)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        accepting = bits[self._shared.end_id]
        bits[self._shared.end_id:] = 0
        bits[sorted(self.vocabulary.stop_ids)] = accepting
        mask[row] = pack_bits(bits[:32 * mask.shape[1]])

    def try_jump_forward(self) -> JumpHelper | None:
        """What the map says, up to a character that it ends inside."""
        return JumpHelper.of(*self._shared.jumps.forced(self._state))


class OutlinesGrammarBackend(BaseGrammarBackend):
    """Regexes, choices, and the schemas that a regex can hold. Everything else is refused, nothing is dropped."""

    name = "outlines"
    kinds = frozenset({"regex", "choice", "json_schema"})

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        # Tokens that could begin END are left out: nothing but END's own token may lead into it.
        first = END.encode()[0]
        self._tokens = replace(context.vocabulary, fingerprint="", token_bytes=tuple(
            b"" if first in text else text for text in context.vocabulary.token_bytes))
        self._speller = Speller(self._tokens)
        self._lock = threading.Lock()
        self._made: object | None = None

    def _vocabulary(self) -> object:
        """The vocabulary as the library wants it: the ids of each text, `END` among them; made once."""
        with self._lock:
            if self._made is None:
                self._made = make_vocabulary(self._tokens)
            return self._made

    def init_value(self, constraint: Constraint) -> Compiled:
        """Our own automaton first: it has limits, and it tells how large the index will be."""
        try:
            tree = self._speller.restrict(normalise(self._regex(constraint)).tree)
            dfa = self._automaton(tree)
        except RecursionError:
            raise ConstraintError("the pattern is nested too deep", where="constraint",
                                  fix="take out groups") from None
        pairs = self._pairs(dfa)
        if pairs > MAX_PAIRS:
            raise GrammarTimeoutError(f"the index would have up to {pairs:,} entries, and its build cannot be stopped",
                                      where="constraint", fix="lower the counts in {n,m}, or use --backend xgrammar")
        index = make_index(render(tree), self._vocabulary())
        shared = OutlinesIndex(index, self._tokens.width, OutlinesJumpForwardMap.of(dfa), pairs)
        return Compiled(OutlinesGrammar(self.context.vocabulary, shared))

    def _regex(self, constraint: Constraint) -> str:
        match constraint.kind:
            case "regex":
                return constraint.source
            case "choice":
                return escape_choice(constraint.choices)
            case "json_schema":
                return schema_regex(constraint.source, self.context.options.whitespace)
            case "json_object" | "ebnf" | "structural_tag":
                raise ConstraintError(f"a regex cannot hold {constraint.kind}", where="constraint")
            case kind:
                assert_never(kind)

    def _automaton(self, tree: Node) -> ByteAutomaton:
        budget = Budget(self.context.limits, self.context.progress)
        fsm = make_deterministic_fsm(tree, budget)
        return spell_in_utf8(fsm.alphabet.intervals, fsm.rows, fsm.finals, budget)

    @cached_property
    def _tokens_by_first_byte(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        firsts = [text[0] for text in self._tokens.token_bytes if text]
        return np.bincount(np.array(firsts, dtype=np.int64), minlength=256)

    def _pairs(self, dfa: ByteAutomaton) -> int:
        """No more (state, allowed token) pairs than this: a token is counted by its first byte."""
        return int(((dfa.table != DEAD) @ self._tokens_by_first_byte).sum())
