"""From characters to bytes: a deterministic automaton over characters becomes one over their UTF-8 bytes.

Tokens are bytes, and many end inside a character; so an automaton that is to judge tokens needs states there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shared_runtime.constrain.compiling.compile_budget import Budget

DEAD = -1  # no way on: the automaton refuses


class Utf8Decoder:
    """The UTF-8 encodings of an alphabet's characters as a DAG of blocks: the code points behind one prefix.

    A child is a key (the character is complete), `DEAD`, or -2 - b for block b. Equal blocks are one block.
    Overlong forms, surrogates and code points past U+10FFFF are absent.

    Args:
        intervals: (first, last, key) closed code-point intervals, ascending and disjoint.
        budget: what building it may cost.

    Attributes:
        lead: per lead byte 00..FF, its child. blocks: per block, the children for the next bytes 80..BF.
        keys: per block, the keys below it.
    """

    def __init__(self, intervals: list[tuple[int, int, int]], budget: Budget) -> None:
        self.blocks: list[tuple[int, ...]] = []
        self.keys: list[frozenset[int]] = []
        self._budget = budget
        self._numbers: dict[tuple[int, ...], int] = {}
        self._uniform: dict[tuple[int, int], int] = {}
        self.lead = [self._child(intervals, byte, 0) for byte in range(0x80)] + [DEAD] * 0x80
        for first, last, tail, floor in ((0xC2, 0xDF, 1, 0x80), (0xE0, 0xEF, 2, 0x800), (0xF0, 0xF4, 3, 0x10000)):
            legal = [(max(low, floor), high, key) for low, high, key in intervals if high >= floor]
            for byte in range(first, last + 1):
                self.lead[byte] = self._child(legal, (byte & 0x3F >> tail) << 6 * tail, tail)

    def _child(self, intervals: list[tuple[int, int, int]], start: int, tail: int) -> int:
        """The child for the code points from `start` on that `tail` more bytes tell apart."""
        end = start + (1 << 6 * tail) - 1
        inside = intervals[bisect_left(intervals, start, key=lambda item: item[1]):
                           bisect_right(intervals, end, key=lambda item: item[0])]
        if not inside:
            return DEAD
        low, high, key = inside[0]
        if tail == 0:
            return key
        uniform = low <= start and high >= end
        if uniform and (key, tail) in self._uniform:
            return self._uniform[key, tail]
        size = 1 << 6 * (tail - 1)
        child = self._share(tuple(self._child(inside, start + i * size, tail - 1) for i in range(64)))
        if uniform:
            self._uniform[key, tail] = child
        return child

    def _share(self, children: tuple[int, ...]) -> int:
        if children not in self._numbers:
            self._numbers[children] = len(self.blocks)
            self.blocks.append(children)
            below = [self.keys[-2 - child] if child < DEAD else (child,) for child in set(children) - {DEAD}]
            self.keys.append(frozenset[int]().union(*below))
            self._budget.store(16 + len(self.keys[-1]))
        return -2 - self._numbers[children]


@dataclass(frozen=True)
class ByteAutomaton:
    """A deterministic automaton over bytes; state 0 is the start. Inside a character it never accepts.

    Attributes:
        table: [states, 256] int32, the next state or `DEAD`. accepting: [states] bool.
    """

    table: NDArray[np.int32]
    accepting: NDArray[np.bool_]

    def walk(self, state: int, spelled: bytes) -> int:
        """The state behind `spelled`, read from `state` on; `DEAD` where there is no way."""
        for byte in spelled:
            if state == DEAD:
                break
            state = int(self.table[state, byte])
        return state

    def bytes_lacking(self, spellable: Set[int]) -> tuple[int, ...]:
        """The bytes outside `spellable` on the way to acceptance that needs fewest of them; () when none does."""
        settled = set[int]()
        queue: deque[tuple[int, tuple[int, ...]]] = deque([(0, ())])
        while queue:
            state, lacking = queue.popleft()
            if self.accepting[state]:
                return tuple(dict.fromkeys(lacking))
            if state in settled:
                continue
            settled.add(state)
            for byte in np.flatnonzero(self.table[state] != DEAD).tolist():
                if byte in spellable:
                    queue.appendleft((int(self.table[state, byte]), lacking))
                else:
                    queue.append((int(self.table[state, byte]), (*lacking, byte)))
        return ()


def spell_in_utf8(intervals: list[tuple[int, int, int]], rows: list[dict[int, int]], finals: Set[int],
                  budget: Budget) -> ByteAutomaton:
    """The byte automaton of a character automaton. Its states keep their numbers; those inside a character follow.

    Args:
        intervals: (first, last, key) closed code-point intervals, ascending and disjoint: the alphabet.
        rows: per state of the character automaton, key -> next state; state 0 is the start.
        finals: its accepting states.
        budget: what it may cost.

    Raises:
        GrammarTimeoutError: past a limit of `budget`.
    """
    speller = _Speller(Utf8Decoder(intervals, budget), len(rows), budget)
    for row in rows:
        speller.add(speller.decoder.lead, 0, row)
    for block, row in speller.inner:  # grows on the way
        speller.add(speller.decoder.blocks[block], 0x80, row)
    accepting = np.zeros(len(speller.table), dtype=np.bool_)
    accepting[sorted(finals)] = True
    return ByteAutomaton(np.stack(speller.table), accepting)


@dataclass
class _Speller:
    """The byte automaton in the making.

    Attributes:
        decoder: the alphabet in UTF-8. outer: how many states the character automaton has.
        table: the rows so far. inner: the states inside a character, each a block and, per key below that block
            that leads somewhere, where to; so equal states are one. numbers: their numbers.
    """

    decoder: Utf8Decoder
    outer: int
    budget: Budget
    table: list[NDArray[np.int32]] = field(default_factory=list)
    inner: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    numbers: dict[tuple[int, tuple[tuple[int, int], ...]], int] = field(default_factory=dict)

    def add(self, children: Sequence[int], first_byte: int, row: dict[int, int]) -> None:
        """Add the next state: it reads `first_byte` and the bytes after it as `children`, and goes on as `row`."""
        self.budget.work(len(children))
        targets = {child: self._target(child, row) for child in dict.fromkeys(children)}
        self.table.append(np.full(256, DEAD, dtype=np.int32))
        self.table[-1][first_byte:first_byte + len(children)] = [targets[child] for child in children]

    def _target(self, child: int, row: dict[int, int]) -> int:
        if child >= DEAD:
            return row.get(child, DEAD)
        block = -2 - child
        below = self.decoder.keys[block]
        fewer, more = (row, below) if len(row) < len(below) else (below, row)
        live = tuple(sorted((key, row[key]) for key in fewer if key in more))
        if not live:
            return DEAD
        if (block, live) not in self.numbers:
            self.numbers[block, live] = self.outer + len(self.inner)
            self.inner.append((block, dict(live)))
            self.budget.states(self.outer + len(self.inner), "byte")
            self.budget.store(8 + 4 * len(live))
        return self.numbers[block, live]
