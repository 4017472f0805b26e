"""The tree of a regex as an NFA without counts: what an automaton builder walks."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.constrain.regex.regex_tree import Alternate, Concat, Empty, Node, Repeat

ACCEPT = -1


@dataclass
class Positions:
    """A pattern as an NFA: nodes with empty edges, and positions that read one character. Make it with `of`.

    Attributes:
        first, last: the nodes where the pattern begins and ends.
        skips: per node, nodes reached without reading. reads: per node, the positions that leave it.
        classes: the distinct classes, numbered. class_of, after: per position, its class and the node behind it.
    """

    budget: Budget
    first: int = 0
    last: int = 0
    skips: list[list[int]] = field(default_factory=list)
    reads: list[list[int]] = field(default_factory=list)
    classes: dict[CharSet, int] = field(default_factory=dict)
    class_of: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, tree: Node, budget: Budget) -> Positions:
        """The NFA of a tree; counts are written out.

        Raises:
            GrammarTimeoutError: past a limit of `budget`.
            RecursionError: the tree is too deep.
        """
        nfa = cls(budget)
        nfa.first = nfa._node()
        nfa.last = nfa._node()
        nfa.skips[nfa._add(tree, nfa.first)].append(nfa.last)
        return nfa

    def _node(self) -> int:
        self.budget.store(8)
        self.skips.append([])
        self.reads.append([])
        return len(self.skips) - 1

    def _add(self, tree: Node, entry: int) -> int:
        """Hang `tree` on node `entry`; returns the node behind it. No edge leads back to `entry`."""
        match tree:
            case Empty():
                return entry
            case CharSet():
                self.reads[entry].append(len(self.after))
                self.class_of.append(self.classes.setdefault(tree, len(self.classes)))
                self.after.append(self._node())
                return self.after[-1]
            case Concat(parts):
                for part in parts:
                    entry = self._add(part, entry)
                return entry
            case Alternate(branches):
                behind = self._node()
                for branch in branches:
                    self.skips[self._add(branch, entry)].append(behind)
                return behind
            case Repeat(item, low, high):
                return self._repeat(item, low, high, entry)

    def _repeat(self, item: Node, low: int, high: int | None, entry: int) -> int:
        for _ in range(low):
            self.budget.store(1)
            entry = self._add(item, entry)
        behind = self._node()
        self.skips[entry].append(behind)
        if high is None:
            self.skips[self._add(item, behind)].append(behind)
            return behind
        for _ in range(high - low):
            self.budget.store(1)
            entry = self._add(item, entry)
            self.skips[entry].append(behind)
        return behind

    def closure(self, node: int) -> frozenset[int]:
        """The positions that can read next at `node`; `ACCEPT` among them when the pattern may end there."""
        seen, stack, found = {node}, [node], set[int]()
        while stack:
            here = stack.pop()
            self.budget.work()
            if here == self.last:
                found.add(ACCEPT)
            found.update(self.reads[here])
            for there in self.skips[here]:
                if there not in seen:
                    seen.add(there)
                    stack.append(there)
        self.budget.store(4 + len(found))
        return frozenset(found)
