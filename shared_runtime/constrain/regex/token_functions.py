"""What tokens do to the states of an automaton: many tokens do the same, so an index can be checked for little.

A token is a function from states to states. Of `.{0,50}` and 49,000 tokens there are 81 such functions: what counts is
how many characters a token has, and where it begins and ends inside one. A whole index follows from them some ten
times faster than from spelling every token from every state, which makes them good for checking one that came from a
file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton
from shared_runtime.constrain.regex.token_trie import TokenTrie

_MOST_FUNCTIONS, _MOST_CELLS = 1 << 12, 1 << 24  # beyond, a build is as cheap


@dataclass(frozen=True)
class TokenFunctions:
    """The functions of all tokens over one automaton.

    Attributes:
        targets: [functions, states] int32, the state behind, or `DEAD`; no row twice, and none that is all `DEAD`.
        of_token: [width] int64, per token id its row of `targets`; -1 where it leads nowhere or spells nothing.
    """

    targets: NDArray[np.int32]
    of_token: NDArray[np.int64]

    @classmethod
    def of(cls, dfa: ByteAutomaton, trie: TokenTrie, budget: Budget) -> TokenFunctions | None:
        """A level of the trie at a time: what a node does follows from its parent and its byte alone.

        Returns:
            None when there are too many different ones to be worth it.

        Raises:
            GrammarTimeoutError: past a limit of `budget`.
        """
        states = len(dfa.table)
        column, of_byte = np.unique(np.vstack([dfa.table, np.full((1, 256), DEAD, np.int32)]), axis=1,
                                    return_inverse=True)  # the last row is where DEAD, as an index, leads
        targets: list[NDArray[np.int32]] = [np.arange(states, dtype=np.int32)]
        numbers = {targets[0].tobytes(): 0, np.full(states, DEAD, np.int32).tobytes(): -1}
        of_node = np.full(len(trie.byte), -1, dtype=np.int64)
        node, function = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        while len(node):
            fan_out = trie.n_children[node]
            parent = np.repeat(np.arange(len(node)), fan_out)
            child = np.arange(len(parent)) + (trie.first_child[node] - np.cumsum(fan_out) + fan_out)[parent]
            pairs, which = np.unique(function[parent] * column.shape[1] + of_byte[trie.byte[child]],
                                     return_inverse=True)
            budget.work(1 + len(parent) // 16 + len(pairs) * (1 + states // 16))
            composed = []
            for before, byte in zip(*np.divmod(pairs, column.shape[1]), strict=True):
                behind = column[targets[before], byte]
                composed.append(numbers.setdefault(behind.tobytes(), len(targets)))
                if composed[-1] == len(targets):
                    targets.append(behind)
            if len(targets) > _MOST_FUNCTIONS or len(targets) * states > _MOST_CELLS:
                return None
            function = np.array(composed, dtype=np.int64)[which]
            node, function = child[function >= 0], function[function >= 0]
            of_node[node] = function
        of_token = np.where(trie.node_of > 0, of_node[trie.node_of], -1)
        used, renumbered = np.unique(of_token[of_token >= 0], return_inverse=True)
        of_token[of_token >= 0] = renumbered
        return cls(np.stack(targets)[used], of_token)

    def boundaries(self, accepting: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[states] bool: what tokens reach from state 0, and from where tokens reach acceptance."""
        reached = np.zeros(len(accepting), dtype=np.bool_)
        fresh = np.zeros(1, dtype=np.int64)
        while len(fresh):
            reached[fresh] = True
            behind = np.unique(self.targets[:, fresh])
            fresh = behind[(behind != DEAD) & ~reached[behind]]
        live = np.append(reached & accepting, False)  # the last one is DEAD's
        count = -1
        while count != (count := int(live.sum())):
            live[:-1] |= reached & live[self.targets].any(axis=0)
        return live[:-1]

    def agree_with(self, rows: Mapping[int, int], masks: Sequence[NDArray[np.uint8]],
                   accepting: NDArray[np.bool_]) -> bool:
        """Whether an index is the one that the automaton and the tokens have.

        Args:
            rows: per state its row of `masks`. masks: [width / 8] uint8, the tokens that may come next.
            accepting: [states] bool.
        """
        live = np.append(self.boundaries(accepting), False)
        if set(np.flatnonzero(live).tolist()) != rows.keys():
            return False
        sharing: dict[int, list[int]] = {}
        for state, row in rows.items():
            sharing.setdefault(row, []).append(state)
        for row, states in sharing.items():
            leads_on = live[self.targets[:, states]]
            allowed = np.append(leads_on[:, 0], False)[self.of_token]  # -1 is the last one
            if (leads_on != leads_on[:, :1]).any() or not np.array_equal(np.packbits(allowed), masks[row]):
                return False
        return True
