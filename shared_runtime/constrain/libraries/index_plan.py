"""How large an index of outlines-core will be, and which tokens it needs: known before a build that cannot be stopped.

The library tries every token of its vocabulary in every state. Our own automaton, which has limits, says how many
states there will be; and where few tokens can ever be taken (an enumeration of thousands), which ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton, spell_in_utf8
from shared_runtime.constrain.regex.char_fsm import make_deterministic_fsm
from shared_runtime.constrain.regex.regex_tree import Alternate, Concat, Empty, Node, Repeat
from shared_runtime.constrain.regex.token_trie import TokenTrie, build_trie
from shared_runtime.errors import GrammarTimeoutError
from shared_runtime.vocabulary import Vocabulary

MAX_PAIRS = 20_000_000
"""Most (state, allowed token) pairs of an index: `.{0,200}` has 10 million and takes 2 s, `.{0,2000}` would take 20 s
and 2.4 GB."""
_MANY_TRIALS = 50_000_000  # states times tokens: a second of the library's time
_FEW_BYTES = 16  # that a state goes on with, on average: else nearly every token can be taken somewhere


@dataclass(frozen=True)
class IndexPlan:
    """What is known of an index before it is built.

    Attributes:
        characters: of the pattern, counts written out. automaton: the pattern over bytes.
        pairs: at most so many (state, token) pairs are in the index.
        needed: [width] bool, the tokens that can be taken in some state; None where it is not worth to know.
    """

    characters: int
    automaton: ByteAutomaton
    pairs: int
    needed: NDArray[np.bool_] | None


@dataclass(frozen=True)
class IndexPlanner:
    """Plans indexes over one vocabulary. May be used from several threads."""

    vocabulary: Vocabulary

    def plan(self, tree: Node, budget: Budget) -> IndexPlan:
        """The plan for a pattern.

        Raises:
            GrammarTimeoutError: past a limit of `budget`, or past `MAX_PAIRS`.
            RecursionError: the tree is too deep.
        """
        characters = _characters(tree, counted=True)
        if characters > 2 * _characters(tree, counted=False):
            budget.states(characters, "character")  # before any work on them: counts in counts multiply
        fsm = make_deterministic_fsm(tree, budget)
        automaton = spell_in_utf8(fsm.alphabet.intervals, fsm.rows, fsm.finals, budget)
        goes_on = automaton.table != DEAD
        sparse = goes_on.sum() < _FEW_BYTES * len(goes_on)
        needed = self._needed(automaton) if sparse and len(goes_on) * len(self.vocabulary) > _MANY_TRIALS else None
        # No more than this: a token is counted in each state that goes on with its first byte.
        pairs = int((goes_on @ self._tokens_by_first_byte(needed)).sum())
        if pairs > MAX_PAIRS:
            raise GrammarTimeoutError(f"the index would have up to {pairs:,} entries, and its build cannot be stopped",
                                      where="constraint", fix="lower the counts in {n,m}, or use another --backend")
        return IndexPlan(characters, automaton, pairs, needed)

    def _tokens_by_first_byte(self, needed: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        kept = self._first_bytes if needed is None else self._first_bytes[needed[:len(self._first_bytes)]]
        return np.bincount(kept[kept >= 0], minlength=256)

    @cached_property
    def _first_bytes(self) -> NDArray[np.int64]:
        return np.array([text[0] if text else -1 for text in self.vocabulary.token_bytes], dtype=np.int64)

    @cached_property
    def _trie(self) -> TokenTrie:
        return build_trie(self.vocabulary)

    def _needed(self, automaton: ByteAutomaton) -> NDArray[np.bool_]:
        trie = self._trie
        alive = np.zeros(len(trie.byte), dtype=np.bool_)
        todo = [(0, np.arange(len(automaton.table)))]
        while todo:
            node, states = todo.pop()
            children = np.arange(trie.first_child[node], trie.first_child[node] + trie.n_children[node])
            ahead = automaton.table[np.ix_(states, trie.byte[children])]
            for child, column in zip(children, ahead.T, strict=True):
                after = column[column != DEAD]
                if after.size:
                    alive[child] = True
                    if trie.n_children[child]:
                        todo.append((int(child), np.unique(after)))
        needed: NDArray[np.bool_] = (trie.node_of > 0) & alive[trie.node_of]
        return needed


def _characters(node: Node, counted: bool) -> int:
    match node:
        case Empty():
            return 0
        case Concat(nodes) | Alternate(nodes):
            return sum(_characters(inner, counted) for inner in nodes)
        case Repeat(item, low, high):
            return _characters(item, counted) * ((low + 1 if high is None else high) if counted else 1)
        case _:
            return 1
