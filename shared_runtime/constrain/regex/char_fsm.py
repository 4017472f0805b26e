"""From a regex's tree to a deterministic automaton over characters: an alphabet table, then the subset construction.

Ours, and counted, because it has to stop: interegular's `to_fsm()` grows tenfold with each +2 of k in
`(a|b)*a(a|b){k}` and lists every character of a class. Each loop here counts its work against a `Budget`.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.constrain.regex.positions import ACCEPT, Positions
from shared_runtime.constrain.regex.regex_tree import Node


@dataclass(frozen=True)
class Alphabet:
    """Characters that no class of a pattern tells apart share one key; those in no class have none.

    Attributes:
        intervals: (first, last, key) closed code-point intervals, ascending and disjoint.
        keys: per class of the pattern, the keys it is made of.
    """

    intervals: list[tuple[int, int, int]]
    keys: list[list[int]]


def make_alphabet(classes: Collection[CharSet], budget: Budget) -> Alphabet:
    """Cut the code space at the ends of all classes, and give equal memberships equal keys."""
    events: dict[int, int] = {}
    for number, chars in enumerate(classes):
        for first, last in chars.intervals:
            events[first] = events.get(first, 0) ^ (1 << number)
            events[last + 1] = events.get(last + 1, 0) ^ (1 << number)
            budget.store(2 + number // 512)
    intervals: list[tuple[int, int, int]] = []
    keys: list[list[int]] = [[] for _ in classes]
    by_members: dict[int, int] = {}
    members, cuts = 0, sorted(events)
    for first, end in pairwise(cuts):
        members ^= events[first]
        if not members:
            continue
        budget.store(1 + len(classes) // 512)
        if members not in by_members:
            by_members[members] = len(by_members)
            budget.store(members.bit_count())
            for number, bit in enumerate(reversed(f"{members:b}")):
                if bit == "1":
                    keys[number].append(by_members[members])
        intervals.append((first, end - 1, by_members[members]))
    return Alphabet(intervals, keys)


@dataclass(frozen=True)
class CharFSM:
    """A deterministic FSM over the keys of an alphabet; state 0 is the start, and states are numbered as found.

    Attributes:
        rows: per state, key -> next state. finals: the accepting states.
    """

    alphabet: Alphabet
    rows: list[dict[int, int]]
    finals: set[int]


def make_deterministic_fsm(tree: Node, budget: Budget) -> CharFSM:
    """The subset construction, breadth first: equal patterns get equal numbers.

    Raises:
        GrammarTimeoutError: past a limit of `budget`.
    """
    subsets = _Subsets(Positions.of(tree, budget), budget)
    alphabet = make_alphabet(subsets.nfa.classes, budget)
    fsm = CharFSM(alphabet, [], set())
    subsets.number([subsets.nfa.first])
    for subset in subsets.found:  # grows on the way
        positions = array("i", subset)
        if positions[0] == ACCEPT:
            fsm.finals.add(len(fsm.rows))
        ahead: dict[int, list[int]] = {}
        for position in positions[positions[0] == ACCEPT:]:
            keys = alphabet.keys[subsets.nfa.class_of[position]]
            budget.work(1 + len(keys))
            for key in keys:
                ahead.setdefault(key, []).append(subsets.nfa.after[position])
        targets = {nodes: subsets.number(nodes) for nodes in dict.fromkeys(map(tuple, ahead.values()))}
        fsm.rows.append({key: targets[tuple(nodes)] for key, nodes in ahead.items()})
        budget.store(4 + len(ahead))
        if len(fsm.rows) % 256 == 0:
            budget.progress("fsm states", len(fsm.rows), 0)
    return fsm


@dataclass
class _Subsets:
    """The sets of NFA positions found so far, numbered; each as the bytes of a sorted int array, to keep it small."""

    nfa: Positions
    budget: Budget
    found: list[bytes] = field(default_factory=list)
    numbers: dict[bytes, int] = field(default_factory=dict)
    closures: dict[int, frozenset[int]] = field(default_factory=dict)

    def number(self, nodes: Collection[int]) -> int:
        """The number of the set of positions that can read next at any of `nodes`."""
        for node in nodes:
            if node not in self.closures:
                self.closures[node] = self.nfa.closure(node)
        union = frozenset[int]().union(*map(self.closures.__getitem__, nodes))
        subset = array("i", sorted(union)).tobytes()
        if subset not in self.numbers:
            self.numbers[subset] = len(self.found)
            self.found.append(subset)
            self.budget.states(len(self.found), "character")
            self.budget.store(1 + len(union) // 4)
        return self.numbers[subset]
