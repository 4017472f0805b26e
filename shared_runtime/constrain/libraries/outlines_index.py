"""Index builds with outlines-core, within limits: the build itself cannot be stopped."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.libraries.index_plan import IndexPlanner
from shared_runtime.constrain.libraries.regex_index import (
    END,
    Guide,
    make_guide,
    make_index,
    make_vocabulary,
    schema_regex,
)
from shared_runtime.constrain.regex.byte_automaton import ByteAutomaton
from shared_runtime.constrain.regex.factoring import factored
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constrain.regex.regex_tree import render
from shared_runtime.constrain.regex.spellable import Speller
from shared_runtime.constrain.using.bitmask import pack_bits
from shared_runtime.errors import ConstraintError
from shared_runtime.policy import StageContext

_BYTES_PER_PAIR = 24


@dataclass(frozen=True)
class OutlinesIndex:
    """A pattern, compiled. Immutable.

    Attributes:
        index: the library's. end_id: the id of `END` in it, one past the vocabulary's width.
        pairs: at most so many (state, token) pairs are in the index. dfa: the pattern as our own automaton.
    """

    index: object
    end_id: int
    pairs: int
    dfa: ByteAutomaton

    @property
    def nbytes(self) -> int:
        """An estimate: the library does not say how large an index is."""
        return _BYTES_PER_PAIR * self.pairs + self.dfa.table.nbytes

    def guide(self) -> Guide:
        """A position at the start."""
        return make_guide(self.index)

    def accepting(self, guide: Guide) -> bool:
        """Whether the text that led to `guide` is complete."""
        return guide.accepts_tokens([self.end_id])

    def write_mask(self, guide: Guide, row: Tensor, stop_ids: frozenset[int]) -> None:
        """Write a packed row ([words] int32): the tokens that `guide` allows, with the stop set in place of `END`."""
        words = np.zeros(self.end_id // 32 + 2, dtype=np.int32)
        guide.write_mask_into(words.ctypes.data, words.size, 4)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        accepting = bits[self.end_id]
        bits[self.end_id:] = 0
        bits[sorted(stop_ids)] = accepting
        row.copy_(pack_bits(bits[:32 * row.shape[0]]))


class IndexBuilder:
    """Builds indexes over one vocabulary. May be used from several threads."""

    def __init__(self, context: StageContext) -> None:
        self._context = context
        # Tokens that could begin END are left out: nothing but END's own token may lead into it.
        first = END.encode()[0]
        self._tokens = replace(context.vocabulary, fingerprint="", token_bytes=tuple(
            b"" if first in text else text for text in context.vocabulary.token_bytes))
        self._speller = Speller(self._tokens)
        self._planner = IndexPlanner(self._tokens)
        self._lock = threading.Lock()
        self._made: object | None = None

    def build(self, pattern: str) -> OutlinesIndex:
        """Our own automaton first: it has limits, and it tells how large the index will be.

        Raises:
            ConstraintError: the pattern is not of the dialect, cannot be spelled, or is too large.
        """
        try:
            tree = self._speller.restrict(factored(normalise(pattern).tree))
            plan = self._planner.plan(tree, Budget(self._context.limits, self._context.progress))
            regex = render(tree)
        except RecursionError:
            raise ConstraintError("the pattern is nested too deep", where="constraint",
                                  fix="take out groups") from None
        vocabulary = self._vocabulary() if plan.needed is None else make_vocabulary(self._tokens, plan.needed)
        return OutlinesIndex(make_index(regex, vocabulary), self._tokens.width, plan.pairs, plan.automaton)

    def build_for_schema(self, source: str) -> OutlinesIndex:
        """The index of a JSON schema.

        Raises:
            ConstraintError: as `build`; or a regex, or the library, cannot hold the schema.
        """
        return self.build(schema_regex(source, self._context.options.whitespace))

    def _vocabulary(self) -> object:
        """The whole vocabulary as the library wants it; made once, whichever thread asks first."""
        with self._lock:
            if self._made is None:
                self._made = make_vocabulary(self._tokens)
            return self._made
