"""`RegexFSM`: which tokens a state allows, and where a token leads.

Upstream kept, per state, a map from token id to next state, and read a state without an entry as "only EOS":
also where nothing had been accepted (museum row 2, never mended while this code lived). Here a state keeps one
bit a token, EOS is allowed exactly where the automaton accepts, and a token is allowed only if acceptance stays
reachable with the tokens there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.byte_automaton import DEAD, ByteAutomaton
from shared_runtime.errors import UnsatisfiableConstraintError
from shared_runtime.vocabulary import Vocabulary

from .tokenizer import ReducedVocabulary, TokenTrie

_STARTS_AT_ONCE = 32  # states walked together: enough to keep NumPy busy, few enough for a small peak of memory


@dataclass(frozen=True)
class RegexFSM:
    """A compiled regex over a vocabulary; immutable, shared by all requests with this regex.

    Attributes:
        vocabulary: the tokens. dfa: the automaton over their bytes; state 0 is the start.
        rows: per state that some tokens lead to and that is no dead end, its row of `masks`.
        masks: distinct bit rows [width / 8] uint8 over the token ids that spell text; equal states share one.
    """

    vocabulary: Vocabulary
    dfa: ByteAutomaton
    rows: dict[int, int]
    masks: list[NDArray[np.uint8]]

    def allowed(self, state: int) -> NDArray[np.bool_]:
        """[width] bool: the tokens that may come next. The stop set is allowed iff `state` accepts."""
        width = self.vocabulary.width
        mask: NDArray[np.bool_] = np.unpackbits(self.masks[self.rows[state]], count=width).view(np.bool_)
        mask[list(self.vocabulary.stop_ids)] = self.accepts(state)
        return mask

    def next_state(self, state: int, token_id: int) -> int:
        """The state behind a token that spells text, `DEAD` where it is not allowed; the stop set never is."""
        mask = self.masks[self.rows[state]]
        if not 0 <= token_id < self.vocabulary.width or not mask[token_id // 8] >> 7 - token_id % 8 & 1:
            return DEAD
        state = self.dfa.walk(state, self.vocabulary.token_bytes[token_id])
        return state if state in self.rows else DEAD  # masks may come from a file

    def accepts(self, state: int) -> bool:
        """Whether the text so far is a full match."""
        return bool(self.dfa.accepting[state])

    @property
    def nbytes(self) -> int:
        """Memory of the tables, in bytes."""
        return self.dfa.table.nbytes + sum(mask.nbytes for mask in self.masks)


def walk(table: NDArray[np.int32], trie: TokenTrie, starts: NDArray[np.int64],
         budget: Budget) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Spell every token from every state of `starts` at once, one byte a turn.

    Yields per turn (start, node, state) of the living, each [n]: which of `starts`, trie node, automaton state.
    """
    flat = table.ravel()
    start, node, state = np.arange(len(starts)), np.zeros(len(starts), dtype=np.int64), starts
    while len(start):
        fan_out = trie.n_children[node]
        parent = np.repeat(np.arange(len(node)), fan_out)
        budget.work(1 + len(parent) // 16)
        child = np.arange(len(parent)) + (trie.first_child[node] - np.cumsum(fan_out) + fan_out)[parent]
        target = flat[(state * 256)[parent] + trie.byte[child]]
        alive = np.flatnonzero(target != DEAD)
        start, node, state = start[parent[alive]], child[alive], target[alive].astype(np.int64)
        yield start, node, state


def live_states(groups: list[tuple[NDArray[np.int64], NDArray[np.uint8]]], accepting: NDArray[np.bool_],
                budget: Budget) -> NDArray[np.bool_]:
    """[states] bool: a token boundary from where acceptance is reachable with tokens.

    Args:
        groups: states in the order they were found, and their token edges: [group, states / 8] uint8, bit s of a
            row is set iff a token leads to s. accepting: [states] bool. budget: what it may cost.
    """
    boundary = np.concatenate([states for states, _ in groups])
    live = np.zeros(len(accepting), dtype=np.bool_)
    live[boundary] = accepting[boundary]
    grows = True
    while grows:
        grows = False
        for states, edges in reversed(groups):
            budget.work(16)
            found = states[(edges & np.packbits(live)).any(axis=1) & ~live[states]]
            live[found] = True
            grows = grows or len(found) > 0
    return live


def build_fsm(dfa: ByteAutomaton, reduced: ReducedVocabulary, budget: Budget) -> RegexFSM:
    """The state-to-token index: every state reachable with tokens, and the tokens that each one allows.

    Raises:
        UnsatisfiableConstraintError: no sequence of tokens spells a text of the language.
        GrammarTimeoutError: past a limit of `budget`.
    """
    states = len(dfa.table)
    rows: dict[int, int] = {}
    masks: dict[bytes, int] = {}
    groups: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []
    found = np.zeros(states, dtype=np.bool_)
    found[0] = True
    pending = deque([0])
    while pending:
        group = np.array([pending.popleft() for _ in range(min(len(pending), _STARTS_AT_ONCE))])
        tokens, ends = _index(dfa, reduced, group, np.ones(states, dtype=np.bool_), budget)
        rows.update(_rows(group, tokens, masks))
        groups.append((group, np.packbits(ends, axis=1)))
        fresh = np.flatnonzero(ends.any(axis=0) & ~found)
        found[fresh] = True
        pending.extend(fresh.tolist())
        budget.progress("index states", len(rows), states)
    live = live_states(groups, dfa.accepting, budget)
    if not live[0]:
        raise _unspellable(dfa.bytes_lacking(reduced.vocabulary.spellable_bytes))
    dead_ends = np.packbits(found & ~live)
    for group, edges in groups:
        narrowed = group[live[group] & (edges & dead_ends).any(axis=1)]
        rows.update(_rows(narrowed, _index(dfa, reduced, narrowed, live, budget)[0], masks))
    budget.progress("index states", states, states)
    live_rows = {state: row for state, row in rows.items() if live[state]}
    return RegexFSM(reduced.vocabulary, dfa, live_rows, [np.frombuffer(bits, dtype=np.uint8) for bits in masks])


def _index(dfa: ByteAutomaton, reduced: ReducedVocabulary, group: NDArray[np.int64], live: NDArray[np.bool_],
           budget: Budget) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Per state of `group`: [group, width] the tokens that end in a `live` state, [group, states] those states."""
    trie = reduced.trie()
    nodes = np.zeros((len(group), len(trie.byte)), dtype=np.bool_)
    ends = np.zeros((len(group), len(dfa.table)), dtype=np.bool_)
    for start, node, state in walk(dfa.table, trie, group, budget):
        kept = np.flatnonzero(trie.ends[node] & live[state])
        nodes[start[kept], node[kept]] = True
        ends[start[kept], state[kept]] = True
    return nodes.take(trie.node_of, axis=1), ends


def _rows(group: NDArray[np.int64], tokens: NDArray[np.bool_], masks: dict[bytes, int]) -> dict[int, int]:
    bits = [row.tobytes() for row in np.packbits(tokens, axis=1)]
    return {state: masks.setdefault(row, len(masks)) for state, row in zip(group.tolist(), bits, strict=True)}


def _unspellable(lacking: tuple[int, ...]) -> UnsatisfiableConstraintError:
    why = "no sequence of tokens spells one, although each byte is in some token"
    if lacking:
        why = f"no token has the byte {', '.join(f'{byte:02X}' for byte in lacking)}"
    return UnsatisfiableConstraintError(f"no text of the language can be spelled: {why}", where="constraint",
                                        fix="change the pattern, or use a model with other tokens")
