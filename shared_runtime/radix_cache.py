"""A radix tree from token prefixes to KV slots: the cache that lets requests share what they have in common.

Edges carry runs of tokens. An edge on which two prefixes part, or on which a match ends, is split there, so a
match always ends at a node, and a lock covers exactly the tokens that are used (upstream did not before #7).
Source: RadixAttention, Zheng et al., "SGLang: Efficient Execution of Structured Language Model Programs",
arXiv:2312.07104, section 3.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from shared_runtime.errors import EngineStateError, IntegrityError
from shared_runtime.prefix_cache import PrefixMatch, PrefixNode

if TYPE_CHECKING:
    from shared_runtime.memory_pool import TokenToKVPool

Ids = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class RadixNode:
    """A node and the edge that leads to it.

    Attributes:
        ids: [n] tokens of the edge, n = 0 for the root alone. slots: [n] int64, where their KV lies.
        serial: order of birth; makes the order of eviction total.
        parent: None for the root, and for a node that has left the tree.
        children: by the first token of their edge.
        lock_count: running requests whose prefix passes through here.
        last_access: tick of the last operation that passed through here.
        queued: has an entry in the cache's eviction heap.
    """

    ids: Ids
    slots: Tensor
    serial: int
    parent: RadixNode | None = None
    children: dict[int, RadixNode] = field(default_factory=dict)
    lock_count: int = 0
    last_access: int = 0
    queued: bool = False

    def __len__(self) -> int:
        return len(self.ids)


class RadixCache:
    """`PrefixCache` as a radix tree, one token the smallest unit of sharing.

    The clock is a counter of operations, so the order of eviction is a function of the calls alone.

    Args:
        pool: evicted slots go back to it.
    """

    shares = True

    def __init__(self, pool: TokenToKVPool) -> None:
        self._pool = pool
        self._clear()

    def _clear(self) -> None:
        no_slots = torch.empty(0, dtype=torch.int64, device=self._pool.device)
        self._births = 0
        self._root = self._new_node(np.empty(0, dtype=np.int64), no_slots)
        self._tick = 0
        self._evictable = 0
        self._protected = 0
        self._heap: list[tuple[int, int, RadixNode]] = []

    # the contract: match, insert

    def match(self, ids: Sequence[int]) -> PrefixMatch:
        """The longest cached prefix; splits a partly matching edge. See `PrefixCache.match`."""
        node, _ = self._walk(np.asarray(ids, dtype=np.int64))
        return PrefixMatch(slots=self._path_slots(node), node=node)

    def insert(self, ids: Sequence[int], slots: Tensor) -> int:
        """Put in what is new and own its slots; how many were there already. See `PrefixCache.insert`."""
        if len(ids) != len(slots):
            raise ValueError(f"{len(ids)} ids cannot go in with {len(slots)} slots: every token has its own")
        key = np.asarray(ids, dtype=np.int64)
        node, already = self._walk(key)
        if already < len(key):
            # Copies: the caller's tensor is a view of the request table, which the next request overwrites.
            own_slots = slots[already:].to(dtype=torch.int64, device=self._pool.device, copy=True)
            leaf = self._new_node(key[already:].copy(), own_slots, parent=node)
            leaf.last_access = self._tick
            node.children[int(leaf.ids[0])] = leaf
            self._evictable += len(leaf)
            self._enqueue(leaf)
        return already

    # the contract: locks

    def lock(self, node: PrefixNode) -> None:
        """Keep the path to `node` from eviction. See `PrefixCache.lock`."""
        for each in self._path(self._own(node)):
            if each.lock_count == 0:
                self._evictable -= len(each)
                self._protected += len(each)
            each.lock_count += 1

    def unlock(self, node: PrefixNode) -> None:
        """Undo one `lock`. See `PrefixCache.unlock`."""
        own = self._own(node)
        if own.lock_count == 0:
            raise ValueError("unlock of a node that is not locked")
        for each in self._path(own):
            each.lock_count -= 1
            if each.lock_count == 0:
                self._evictable += len(each)
                self._protected -= len(each)
                self._enqueue(each)

    # the contract: giving back

    def evict(self, wanted: int) -> int:
        """Free whole leaves, least recently used first. See `PrefixCache.evict`."""
        freed: list[Tensor] = []
        count = 0
        while count < wanted and self._heap:
            last_access, _, node = heapq.heappop(self._heap)
            node.queued = False
            if not self._is_evictable_leaf(node):
                continue  # it comes back when its last child goes, or its last lock
            if node.last_access != last_access:
                self._enqueue(node)  # used since it was queued: back in line, at its real age
                continue
            freed.append(node.slots)
            count += len(node)
            self._remove(node)
        if freed:
            self._pool.free(torch.cat(freed))
        return count

    def reset(self) -> None:
        """Forget everything and free every slot. See `PrefixCache.reset`."""
        if self._root.lock_count:
            raise EngineStateError(f"{self._root.lock_count} running requests still use the prefix cache",
                                   where="reset", fix="let them finish or abort them first")
        nodes = list(self._nodes())
        self._pool.free(torch.cat([node.slots for node in nodes]))
        for node in nodes:
            node.parent = None
        self._clear()

    def abandon(self) -> None:
        """Forget everything and free nothing. See `PrefixCache.abandon`."""
        self._clear()

    # the contract: accounting

    @property
    def evictable(self) -> int:
        """Slots that `evict` could free now."""
        return self._evictable

    @property
    def protected(self) -> int:
        """Slots under a lock."""
        return self._protected

    def held_slots(self) -> list[int]:
        """Every slot the cache owns."""
        return [slot for node in self._nodes() for slot in node.slots.tolist()]

    def path(self, node: PrefixNode) -> tuple[list[int], list[int]]:
        """Ids and slots from the root to `node`."""
        own = self._own(node)
        ids = np.concatenate([each.ids for each in reversed(list(self._path(own)))])
        return ids.tolist(), self._path_slots(own).tolist()

    def snapshot(self) -> dict[str, object]:
        """The tree for the trace. See `PrefixCache.snapshot`."""
        nodes = list(self._nodes())
        index = {node.serial: i for i, node in enumerate(nodes)}
        return {"nodes": [
            {"ids": node.ids.tolist(), "slots": node.slots.tolist(), "lock_count": node.lock_count,
             "last_access": node.last_access, "children": [index[child.serial] for child in _sorted(node)]}
            for node in nodes
        ]}

    def check(self, locked: Iterable[PrefixNode]) -> None:
        """Prove the tree's books. See `PrefixCache.check`."""
        expected: dict[int, int] = {}
        for holder in locked:
            for node in self._path(self._own(holder)):
                expected[node.serial] = expected.get(node.serial, 0) + 1
        for node in self._nodes():
            self._check_node(node, expected.get(node.serial, 0))
        protected = sum(len(node) for node in self._nodes() if node.lock_count)
        evictable = sum(len(node) for node in self._nodes() if not node.lock_count)
        if (self._evictable, self._protected) != (evictable, protected):
            raise IntegrityError(
                f"prefix cache counts {self._evictable} evictable and {self._protected} protected slots, "
                f"its nodes hold {evictable} and {protected}")

    def _check_node(self, node: RadixNode, running: int) -> None:
        name = f"prefix cache node {node.serial} ({node.ids[:8].tolist()}...)"
        if len(node.ids) != len(node.slots):
            raise IntegrityError(f"{name}: {len(node.ids)} ids with {len(node.slots)} slots")
        if (len(node) == 0) != (node is self._root):
            raise IntegrityError(f"{name}: {len(node)} ids on its edge")
        if node.lock_count != running:
            raise IntegrityError(f"{name}: lock count {node.lock_count}, {running} running requests below")
        for first, child in node.children.items():
            if child.parent is not node or int(child.ids[0]) != first:
                raise IntegrityError(f"{name}: child {first} is not linked back to it")
        if self._is_evictable_leaf(node) and not node.queued:
            raise IntegrityError(f"{name}: may be evicted but is not in line for it")

    # the tree

    def _walk(self, key: Ids) -> tuple[RadixNode, int]:
        """Follow `key` as far as the tree goes, touching the path: where it ends, after how many tokens."""
        self._tick += 1
        node, done = self._root, 0
        node.last_access = self._tick
        while done < len(key):
            child = node.children.get(int(key[done]))
            if child is None:
                break
            common = _common_length(child.ids, key[done:])
            if common < len(child):
                child = self._split(node, child, common)
            child.last_access = self._tick
            node, done = child, done + common
        return node, done

    def _split(self, parent: RadixNode, node: RadixNode, at: int) -> RadixNode:
        """Give the first `at` tokens of the edge to `node` a node of their own; that new node.

        `node` stays the lower end: whoever holds a lock on it uses the whole edge. Every such lock passes
        through the new node too, so that starts with the same count, and the sums of locked slots stay.
        """
        upper = self._new_node(node.ids[:at].copy(), node.slots[:at].clone(), parent=parent)
        upper.lock_count = node.lock_count
        parent.children[int(upper.ids[0])] = upper
        # Copies, not views: a view would keep the whole edge in memory after the other half is evicted.
        node.ids, node.slots, node.parent = node.ids[at:].copy(), node.slots[at:].clone(), upper
        upper.children[int(node.ids[0])] = node
        return upper

    def _remove(self, leaf: RadixNode) -> None:
        parent, leaf.parent = leaf.parent, None
        assert parent is not None, "the root is never evicted"
        del parent.children[int(leaf.ids[0])]
        self._evictable -= len(leaf)
        self._enqueue(parent)

    def _enqueue(self, node: RadixNode) -> None:
        """Put a node that may be evicted in line, once; a touch later on is noticed when its turn comes."""
        if not node.queued and self._is_evictable_leaf(node):
            node.queued = True
            heapq.heappush(self._heap, (node.last_access, node.serial, node))

    def _is_evictable_leaf(self, node: RadixNode) -> bool:
        return node is not self._root and not node.children and node.lock_count == 0

    def _new_node(self, ids: Ids, slots: Tensor, parent: RadixNode | None = None) -> RadixNode:
        self._births += 1
        return RadixNode(ids, slots, serial=self._births, parent=parent)

    def _own(self, node: PrefixNode) -> RadixNode:
        if not isinstance(node, RadixNode) or (node.parent is None and node is not self._root):
            raise ValueError("the node is not in this cache (any more)")
        return node

    def _path(self, node: RadixNode) -> Iterator[RadixNode]:
        """From `node` up to the root, both included."""
        up: RadixNode | None = node
        while up is not None:
            yield up
            up = up.parent

    def _path_slots(self, node: RadixNode) -> Tensor:
        return torch.cat([each.slots for each in reversed(list(self._path(node)))])

    def _nodes(self) -> Iterator[RadixNode]:
        """Every node, parents first, siblings by their first token."""
        stack = [self._root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(_sorted(node)))


def _sorted(node: RadixNode) -> list[RadixNode]:
    return [node.children[first] for first in sorted(node.children)]


def _common_length(edge: Ids, key: Ids) -> int:
    """Length of the longest common prefix, found by comparing whole arrays."""
    n = min(len(edge), len(key))
    differ = np.flatnonzero(edge[:n] != key[:n])
    return int(differ[0]) if differ.size else n
