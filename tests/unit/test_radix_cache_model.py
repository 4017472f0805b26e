"""The radix cache under random use, against a plain dictionary of prefixes."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shared_runtime.prefix_cache import PrefixMatch, PrefixNode
from shared_runtime.radix_cache import RadixCache
from tests.unit.test_radix_cache import nodes_of, small_pool

Prefix = tuple[int, ...]
# Which of the sequences used so far to begin like, for how many tokens, and how to go on: random sequences alone
# would seldom part in the middle of an edge.
Recipe = tuple[int, int, list[int]]
RECIPES = st.tuples(st.integers(0, 9), st.integers(0, 9), st.lists(st.integers(0, 2), max_size=5))


class AgainstADictionaryOfPrefixes(RuleBasedStateMachine):
    """Every cached prefix is a key of a plain dictionary: the slot of its last token, and its last use."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = small_pool(24)
        self.cache = RadixCache(self.pool)
        self.slot: dict[Prefix, int] = {}
        self.used: dict[Prefix, int] = {}
        self.clock = 0
        self.locked: list[tuple[Prefix, PrefixNode]] = []
        self.recent: list[list[int]] = [[]]

    def sequence(self, recipe: Recipe) -> list[int]:
        which, keep, tail = recipe
        ids = [*self.recent[which % len(self.recent)][:keep], *tail][:9]
        self.recent = [*self.recent[-9:], ids]
        return ids

    def touch(self, ids: Sequence[int]) -> list[Prefix]:
        """The cached prefixes of `ids`, shortest first, now used."""
        self.clock += 1
        prefixes = [tuple(ids[:n]) for n in range(1, len(ids) + 1)]
        cached = [prefix for prefix in prefixes if prefix in self.slot]
        self.used |= dict.fromkeys(cached, self.clock)
        return cached

    def match_checked(self, ids: list[int]) -> PrefixMatch:
        cached = self.touch(ids)
        match = self.cache.match(ids)
        assert match.slots.tolist() == [self.slot[prefix] for prefix in cached]
        assert self.cache.path(match.node)[0] == ids[:len(cached)]
        return match

    @rule(recipe=RECIPES)
    def insert(self, recipe: Recipe) -> None:
        ids = self.sequence(recipe)
        if self.pool.available < len(ids):
            self.evict(len(ids) - self.pool.available)
        slots = self.pool.alloc(len(ids))
        if slots is None:
            return
        cached = self.touch(ids)
        assert self.cache.insert(ids, slots) == len(cached)
        self.pool.free(slots[:len(cached)])
        for n in range(len(cached) + 1, len(ids) + 1):
            self.slot[tuple(ids[:n])] = int(slots[n - 1])
            self.used[tuple(ids[:n])] = self.clock

    @rule(recipe=RECIPES)
    def match(self, recipe: Recipe) -> None:
        ids = self.sequence(recipe)
        self.match_checked(ids)

    @rule(recipe=RECIPES)
    def lock(self, recipe: Recipe) -> None:
        ids = self.sequence(recipe)
        match = self.match_checked(ids)
        self.cache.lock(match.node)
        self.locked.append((tuple(ids[:len(match.slots)]), match.node))

    @precondition(lambda self: self.locked)
    @rule(which=st.integers(0, 99))
    def unlock(self, which: int) -> None:
        _, node = self.locked.pop(which % len(self.locked))
        self.cache.unlock(node)

    @rule(wanted=st.one_of(st.integers(0, 3), st.just(24)))
    def evict(self, wanted: int) -> None:
        leaves = {p for p in self.slot if not any(q[:-1] == p for q in self.slot)}
        longest_edge = max(len(node["ids"]) for node in nodes_of(self.cache))
        could = self.cache.evictable
        freed = self.cache.evict(wanted)
        held = set(self.cache.held_slots())
        gone = {prefix for prefix, slot in self.slot.items() if slot not in held}
        assert freed == len(gone) >= min(wanted, could)
        assert freed - longest_edge < max(wanted, 1), "no leaf went that was not needed"
        stayed = [self.used[p] for p in leaves - gone if p not in self.protected()]
        assert all(self.used[p] <= used for p in gone for used in stayed), "least recently used first"
        for prefix in gone:
            del self.slot[prefix], self.used[prefix]

    @precondition(lambda self: not self.locked)
    @rule()
    def reset(self) -> None:
        self.cache.reset()
        self.slot.clear()
        self.used.clear()

    def protected(self) -> set[Prefix]:
        return {ids[:n] for ids, _ in self.locked for n in range(1, len(ids) + 1)}

    @invariant()
    def the_books_balance(self) -> None:
        assert sorted(self.cache.held_slots()) == sorted(self.slot.values())
        assert sorted([*self.pool.free_slots(), *self.cache.held_slots()]) == list(range(1, 25))
        assert self.protected() <= set(self.slot), "a locked prefix never goes"
        assert self.cache.protected == len(self.protected())
        assert self.cache.evictable == len(self.slot) - len(self.protected())
        self.cache.check([node for _, node in self.locked])

    @invariant()
    def the_tree_is_the_dictionary(self) -> None:
        found: dict[Prefix, int] = {}
        above: dict[int, Prefix] = {0: ()}
        for index, node in enumerate(nodes_of(self.cache)):
            head, ids = above[index], node["ids"]
            found |= {(*head, *ids[:n + 1]): node["slots"][n] for n in range(len(ids))}
            above |= dict.fromkeys(node["children"], (*head, *ids))
        assert found == self.slot

    @invariant()
    def a_locked_node_means_what_it_meant(self) -> None:
        for ids, node in self.locked:
            assert self.cache.path(node) == (list(ids), [self.slot[ids[:n + 1]] for n in range(len(ids))])


TestAgainstADictionaryOfPrefixes = AgainstADictionaryOfPrefixes.TestCase
TestAgainstADictionaryOfPrefixes.settings = hypothesis.settings(
    max_examples=60, stateful_step_count=40, deadline=None)
