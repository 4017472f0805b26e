"""The radix cache case by case, the two bugs that upstream's first one had, and the naive cache."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TypedDict, cast

import pytest
import torch

from shared_runtime.errors import EngineStateError, IntegrityError
from shared_runtime.memory_pool import TokenToKVPool
from shared_runtime.naive_cache import NaiveCache
from shared_runtime.prefix_cache import PrefixCache
from shared_runtime.radix_cache import RadixCache

SIZE = 64


def small_pool(size: int = SIZE) -> TokenToKVPool:
    return TokenToKVPool(size=size, n_layers=1, n_kv_heads=1, head_dim=1, dtype=torch.float32,
                         device=torch.device("cpu"))


def put(cache: PrefixCache, pool: TokenToKVPool, ids: Sequence[int]) -> list[int]:
    """Insert as a request without a prefix does: own slots for all, duplicates freed. Returns those slots."""
    slots = pool.alloc(len(ids))
    assert slots is not None
    already = cache.insert(ids, slots)
    pool.free(slots[:already])
    listed: list[int] = slots.tolist()
    return listed


class Node(TypedDict):
    ids: list[int]
    slots: list[int]
    lock_count: int
    last_access: int
    children: list[int]


def nodes_of(cache: PrefixCache) -> list[Node]:
    return cast("list[Node]", cache.snapshot()["nodes"])


@pytest.fixture
def pool() -> TokenToKVPool:
    return small_pool()


@pytest.fixture
def cache(pool: TokenToKVPool) -> RadixCache:
    return RadixCache(pool)


def test_museum_4_as_many_ids_as_slots_or_nothing_goes_in(cache: RadixCache, pool: TokenToKVPool) -> None:
    """Upstream's #4: a finished request put n ids in with n-1 slots, and the accounting drifted."""
    slots = pool.alloc(4)
    assert slots is not None
    with pytest.raises(ValueError, match="5 ids cannot go in with 4 slots"):
        cache.insert([1, 2, 3, 4, 5], slots)
    with pytest.raises(ValueError, match="3 ids cannot go in with 4 slots"):
        cache.insert([1, 2, 3], slots)
    assert cache.held_slots() == []
    assert cache.insert([1, 2, 3, 4], slots) == 0
    cache.evict(SIZE)
    assert (cache.evictable, pool.available) == (0, SIZE), "back to the start after evicting all"


def test_museum_5_a_partly_matching_edge_is_split_so_that_a_lock_covers_what_is_used(
        cache: RadixCache, pool: TokenToKVPool) -> None:
    """Upstream's #7: "abxy" on an edge "abcd" gave the node of "abcd", and the lock covered unused tokens."""
    slots = put(cache, pool, list(b"abcd"))
    match = cache.match(list(b"abxy"))
    assert match.slots.tolist() == slots[:2]
    assert cache.path(match.node) == (list(b"ab"), slots[:2])
    cache.lock(match.node)
    assert (cache.protected, cache.evictable) == (2, 2)
    assert cache.evict(SIZE) == 2, "the unused half may go"
    assert cache.match(list(b"abcd")).slots.tolist() == slots[:2]


def test_insert_tells_how_many_tokens_were_there_and_keeps_its_own_slots(
        cache: RadixCache, pool: TokenToKVPool) -> None:
    first = put(cache, pool, [1, 2, 3, 4])
    slots = pool.alloc(5)
    assert slots is not None
    assert cache.insert([1, 2, 3, 9, 9], slots) == 3
    assert cache.match([1, 2, 3, 9, 9]).slots.tolist() == first[:3] + slots[3:].tolist()
    assert cache.match([1, 2, 3, 4, 5]).slots.tolist() == first
    more = pool.alloc(2)
    assert more is not None
    assert cache.insert([1, 2], more) == 2


def test_insert_copies_the_slots_it_takes(cache: RadixCache, pool: TokenToKVPool) -> None:
    """The caller passes a view of its table row, and the next request overwrites that row."""
    row = torch.tensor([5, 6, 7, 0, 0])
    cache.insert([1, 2, 3], row[:3])
    row.zero_()
    assert cache.match([1, 2, 3]).slots.tolist() == [5, 6, 7]


@pytest.mark.parametrize("ids", [[], [7], [7, 8, 9]])
def test_nothing_matches_in_an_empty_cache(cache: RadixCache, ids: list[int]) -> None:
    match = cache.match(ids)
    assert match.slots.tolist() == []
    assert match.slots.dtype == torch.int64
    assert cache.path(match.node) == ([], [])


def test_a_held_node_keeps_meaning_the_same_prefix_when_its_edge_is_split(
        cache: RadixCache, pool: TokenToKVPool) -> None:
    slots = put(cache, pool, [1, 2, 3, 4])
    whole = cache.match([1, 2, 3, 4])
    cache.lock(whole.node)
    cache.lock(whole.node)
    half = cache.match([1, 2, 9])
    assert cache.path(whole.node) == ([1, 2, 3, 4], slots)
    assert half.node.lock_count == 2, "both locks pass through the new upper half"
    assert (cache.protected, cache.evictable) == (4, 0)
    cache.lock(half.node)
    cache.check([whole.node, whole.node, half.node])
    cache.unlock(whole.node)
    cache.unlock(whole.node)
    assert (cache.protected, cache.evictable) == (2, 2)
    cache.unlock(half.node)
    assert (cache.protected, cache.evictable) == (0, 4)


def test_what_is_inserted_below_a_locked_node_may_be_evicted(cache: RadixCache, pool: TokenToKVPool) -> None:
    put(cache, pool, [1, 2])
    node = cache.match([1, 2]).node
    cache.lock(node)
    put(cache, pool, [1, 2, 3, 4, 5])
    assert (cache.protected, cache.evictable) == (2, 3)
    assert cache.evict(1) == 3
    assert cache.evict(1) == 0
    cache.unlock(node)
    assert cache.evict(1) == 2, "a locked leaf comes back in line when its lock goes"


def test_least_recently_used_leaves_go_first_and_a_match_counts_as_use(
        cache: RadixCache, pool: TokenToKVPool) -> None:
    a, b, c = (put(cache, pool, ids) for ids in ([1, 1], [2, 2], [3, 3]))
    cache.match([1, 1])
    cache.evict(1)
    assert sorted(cache.held_slots()) == sorted(a + c)
    put(cache, pool, [3, 3, 4])
    cache.evict(1)
    assert cache.match([1, 1]).slots.tolist() == []
    assert cache.match([3, 3, 4]).slots.numel() == 3
    assert set(b).isdisjoint(cache.held_slots())


def test_a_parent_becomes_a_leaf_when_its_last_child_is_evicted(
        cache: RadixCache, pool: TokenToKVPool) -> None:
    put(cache, pool, [1, 2, 3])
    put(cache, pool, [1, 2, 4])
    assert cache.evict(3) == 4, "both leaves of one token, then the shared edge of two"
    assert nodes_of(cache) == [
        {"ids": [], "slots": [], "lock_count": 0, "last_access": 2, "children": []}]


def test_evicting_gives_the_slots_back_and_says_how_many(cache: RadixCache, pool: TokenToKVPool) -> None:
    put(cache, pool, [1, 2, 3])
    assert cache.evict(0) == 0
    assert cache.evict(1) == 3, "leaves go whole"
    assert pool.available == SIZE
    assert cache.evict(1) == 0


def test_an_evicted_node_can_no_longer_be_locked(cache: RadixCache, pool: TokenToKVPool) -> None:
    put(cache, pool, [1, 2])
    node = cache.match([1, 2]).node
    cache.evict(2)
    for use in (cache.lock, cache.unlock, cache.path):
        with pytest.raises(ValueError, match="not in this cache"):
            use(node)


def test_unlocking_more_often_than_locking_is_an_error(cache: RadixCache, pool: TokenToKVPool) -> None:
    put(cache, pool, [1, 2])
    node = cache.match([1, 2]).node
    cache.lock(node)
    cache.unlock(node)
    with pytest.raises(ValueError, match="not locked"):
        cache.unlock(node)
    assert (cache.protected, cache.evictable) == (0, 2)


def test_reset_frees_everything_and_is_refused_while_requests_run(
        cache: RadixCache, pool: TokenToKVPool) -> None:
    put(cache, pool, [1, 2, 3])
    node = cache.match([1, 2]).node
    cache.lock(node)
    with pytest.raises(EngineStateError, match="1 running requests"):
        cache.reset()
    assert pool.available == SIZE - 3
    cache.unlock(node)
    cache.reset()
    assert (pool.available, cache.evictable, cache.held_slots()) == (SIZE, 0, [])
    with pytest.raises(ValueError, match="not in this cache"):
        cache.lock(node)
    put(cache, pool, [1, 2])
    assert cache.match([1, 2, 3]).slots.numel() == 2


def test_the_snapshot_is_the_tree_parents_first(cache: RadixCache, pool: TokenToKVPool) -> None:
    slots = put(cache, pool, [1, 2, 3])
    other = put(cache, pool, [1, 2, 0])
    assert cache.snapshot() == {"nodes": [
        {"ids": [], "slots": [], "lock_count": 0, "last_access": 2, "children": [1]},
        {"ids": [1, 2], "slots": slots[:2], "lock_count": 0, "last_access": 2, "children": [2, 3]},
        {"ids": [0], "slots": other[2:], "lock_count": 0, "last_access": 2, "children": []},
        {"ids": [3], "slots": slots[2:], "lock_count": 0, "last_access": 1, "children": []},
    ]}


def test_a_chain_of_a_thousand_nodes_is_no_problem() -> None:
    """A request that is handed over after every token leaves a node a token: deeper than a recursion may go."""
    depth = sys.getrecursionlimit() + 100
    pool = small_pool(depth)
    cache = RadixCache(pool)
    slots = pool.alloc(depth)
    assert slots is not None
    for length in range(1, depth + 1):
        assert cache.insert([7] * length, slots[:length]) == length - 1
    assert len(nodes_of(cache)) == depth + 1
    assert json.loads(json.dumps(cache.snapshot())) == cache.snapshot()
    cache.lock(cache.match([7] * depth).node)
    cache.check([cache.match([7] * depth).node])
    cache.unlock(cache.match([7] * depth).node)
    assert cache.evict(depth) == depth


def test_looking_does_not_change_the_order_of_eviction(cache: RadixCache, pool: TokenToKVPool) -> None:
    first = put(cache, pool, [1])
    put(cache, pool, [2])
    node = cache.match([1]).node
    cache.match([2])
    cache.path(node)
    cache.check([])
    cache.snapshot()
    cache.evict(1)
    assert set(first).isdisjoint(cache.held_slots())


def test_check_finds_a_lock_that_no_request_holds(cache: RadixCache, pool: TokenToKVPool) -> None:
    put(cache, pool, [1, 2])
    node = cache.match([1, 2]).node
    cache.lock(node)
    cache.check([node])
    with pytest.raises(IntegrityError, match="lock count 1, 0 running"):
        cache.check([])
    with pytest.raises(IntegrityError, match="lock count 1, 2 running"):
        cache.check([node, node])


def test_the_naive_cache_shares_nothing_and_keeps_nothing(pool: TokenToKVPool) -> None:
    cache = NaiveCache(pool)
    slots = pool.alloc(3)
    assert slots is not None
    assert cache.insert([1, 2, 3], slots) == 0
    assert pool.available == SIZE, "it owned them, and gave them back"
    match = cache.match([1, 2, 3])
    assert match.slots.tolist() == []
    assert (cache.evict(5), cache.evictable, cache.protected, cache.held_slots()) == (0, 0, 0, [])
    with pytest.raises(ValueError, match="1 ids cannot go in with 3 slots"):
        cache.insert([1], slots)


def test_the_naive_cache_counts_locks_as_the_contract_says(pool: TokenToKVPool) -> None:
    cache = NaiveCache(pool)
    node = cache.match([1]).node
    cache.lock(node)
    cache.check([node])
    with pytest.raises(IntegrityError, match="lock count 1, 0 running"):
        cache.check([])
    with pytest.raises(EngineStateError, match="1 running requests"):
        cache.reset()
    cache.unlock(node)
    cache.reset()
    with pytest.raises(ValueError, match="not locked"):
        cache.unlock(node)
    with pytest.raises(ValueError, match="not in this cache"):
        cache.lock(RadixCache(pool).match([]).node)
