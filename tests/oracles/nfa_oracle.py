"""The mask oracle: naive simulation over characters, for vocabularies of any size.

A token is allowed iff a text with that token next can still be completed from characters whose bytes all occur in
the vocabulary. That is "completed by tokens" exactly where each such byte also is a token of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from shared_runtime.vocabulary import Vocabulary
from tests.oracles.python_tree import CharNfa, build_nfa
from tests.oracles.utf8 import Intervals, meet, spellable_intervals, split_text, tail_intervals

States = frozenset[int]


@dataclass
class _Row:
    """What is known of one set of states: where each character leads (None: nowhere alive)."""

    states: States
    after: dict[str, _Row | None] = field(default_factory=dict)
    tails: dict[bytes, bool] = field(default_factory=dict)


@lru_cache(maxsize=8)
def _spelled(token_bytes: tuple[bytes, ...]) -> tuple[tuple[int, str, bytes] | None, ...]:
    """Per token its id, its whole characters and the bytes of the last one begun; None: no UTF-8 by itself."""
    split = [split_text(spelled) if spelled else None for spelled in token_bytes]
    return tuple(None if parts is None else (token_id, *parts) for token_id, parts in enumerate(split))


class MaskOracle:
    """Which tokens may follow a prefix, by the definition.

    Args:
        pattern: a regex of the dialect, as the user writes it.
        vocabulary: the tokens.

    Raises:
        ValueError: the pattern has a construct that the dialect refuses.
    """

    def __init__(self, pattern: str, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.nfa = build_nfa(pattern)
        self._spellable = spellable_intervals(vocabulary.spellable_bytes)
        self._tokens = _spelled(vocabulary.token_bytes)
        nfa = self.nfa
        self._accepting = _backward([free + end for free, end in zip(nfa.free, nfa.at_end, strict=True)],
                                    {nfa.final})
        spelled = [[target for chars, target in edges if meet(chars, self._spellable)] for edges in nfa.edges]
        self._alive = _backward([free + start + chars for free, start, chars
                                 in zip(nfa.free, nfa.at_start, spelled, strict=True)], self._accepting)
        self._initial = _initial(nfa)
        self._rows: dict[States, _Row] = {}

    def accepts(self, text: str) -> bool:
        """Whether the whole text is in the language, spellable or not."""
        states = self._initial
        for char in text:
            states = self._step(states, ord(char))
        return not states.isdisjoint(self._accepting)

    def viable(self, prefix: bytes) -> bool:
        """Whether the bytes can be completed to a text of the language."""
        parts = split_text(prefix)
        row = None if parts is None else self._row_after(parts[0])
        return row is not None and parts is not None and self._tail_viable(row, parts[1])

    def allowed(self, prefix: bytes) -> set[int]:
        """The ids that may come next, stop ids included where the text may end. Empty for a dead prefix."""
        parts = split_text(prefix)
        if parts is None or not self.viable(prefix):
            return set()
        row = self._row_after(parts[0])
        assert row is not None
        if parts[1]:
            # Inside a character only a continuation byte can follow.
            return {token_id for token_id, spelled in enumerate(self.vocabulary.token_bytes)
                    if spelled and 0x80 <= spelled[0] <= 0xBF and self._continues(row, parts[1] + spelled)}
        found = {entry[0] for entry in self._tokens
                 if entry is not None and self._survives(row, entry[1], entry[2])}
        if not row.states.isdisjoint(self._accepting):
            found |= self.vocabulary.stop_ids
        return found

    def _row_after(self, text: str) -> _Row | None:
        row = self._row(self._initial & self._alive)
        for char in text:
            if row is None:
                return None
            row = self._after(row, char)
        return row

    def _row(self, states: States) -> _Row | None:
        if not states:
            return None
        return self._rows.setdefault(states, _Row(states))

    def _after(self, row: _Row, char: str) -> _Row | None:
        if char not in row.after:
            row.after[char] = self._row(self._step(row.states, ord(char)) & self._alive)
        return row.after[char]

    def _survives(self, row: _Row, text: str, tail: bytes) -> bool:
        for char in text:
            after = row.after[char] if char in row.after else self._after(row, char)
            if after is None:
                return False
            row = after
        return not tail or self._tail_viable(row, tail)

    def _continues(self, row: _Row, data: bytes) -> bool:
        parts = split_text(data)
        return parts is not None and self._survives(row, *parts)

    def _tail_viable(self, row: _Row, tail: bytes) -> bool:
        """Whether some spellable character that begins with these bytes keeps a state alive."""
        if not tail:
            return True
        if tail not in row.tails:
            possible = meet(tail_intervals(tail), self._spellable)
            row.tails[tail] = any(target in self._alive and meet(chars, possible)
                                  for state in row.states for chars, target in self.nfa.edges[state])
        return row.tails[tail]

    def _step(self, states: States, code_point: int) -> States:
        targets = {target for state in states for chars, target in self.nfa.edges[state]
                   if _holds(chars, code_point)}
        return _closure([self.nfa.free], targets)


def _holds(chars: Intervals, code_point: int) -> bool:
    index = bisect_right(chars, (code_point, 0x110000)) - 1
    return index >= 0 and chars[index][0] <= code_point <= chars[index][1]


def _initial(nfa: CharNfa) -> States:
    """The states before the first character, where `^` holds."""
    states = _closure([nfa.free, nfa.at_start], {0})
    # In the empty text `$` holds there too, even before a `^`; the final state leads nowhere else.
    both = _closure([nfa.free, nfa.at_start, nfa.at_end], {0})
    return states | ({nfa.final} & both)


def _closure(columns: list[list[list[int]]], states: Iterable[int]) -> States:
    """The states reached over the edges of the columns, which read nothing."""
    found = set(states)
    stack = list(found)
    while stack:
        state = stack.pop()
        reached = {target for column in columns for target in column[state]} - found
        found |= reached
        stack += reached
    return frozenset(found)


def _backward(edges: list[list[int]], goals: Iterable[int]) -> States:
    """The states from which a goal is reached."""
    sources: list[list[int]] = [[] for _ in edges]
    for state, targets in enumerate(edges):
        for target in targets:
            sources[target].append(state)
    return _closure([sources], goals)
