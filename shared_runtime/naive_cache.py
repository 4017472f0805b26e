"""A prefix cache that shares nothing: the oracle for "caching never changes an answer".

It fulfils `PrefixCache` to the letter: a match is always empty; an insert finds nothing there, takes the
slots and, having no use for them, gives them back to the pool at once. `shares` is False, so `hand_over`
leaves a running request in possession of its own slots instead of inserting them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shared_runtime.errors import EngineStateError, IntegrityError
from shared_runtime.prefix_cache import PrefixMatch, PrefixNode

if TYPE_CHECKING:
    from shared_runtime.memory_pool import TokenToKVPool


@dataclass(slots=True, eq=False)
class NaiveNode:
    """The one node there is: the empty prefix."""

    lock_count: int = 0


class NaiveCache:
    """`PrefixCache` without sharing.

    Args:
        pool: inserted slots go straight back to it.
    """

    shares = False

    def __init__(self, pool: TokenToKVPool) -> None:
        self._pool = pool
        self._root = NaiveNode()

    def match(self, ids: Sequence[int]) -> PrefixMatch:
        """Nothing is ever cached: no slots, and the root."""
        return PrefixMatch(torch.empty(0, dtype=torch.int64, device=self._pool.device), self._root)

    def insert(self, ids: Sequence[int], slots: Tensor) -> int:
        """Take the slots, and free them at once; always 0."""
        if len(ids) != len(slots):
            raise ValueError(f"{len(ids)} ids cannot go in with {len(slots)} slots: every token has its own")
        if len(slots):
            self._pool.free(slots.to(dtype=torch.int64, copy=True))
        return 0

    def lock(self, node: PrefixNode) -> None:
        """Count a request that runs."""
        self._own(node).lock_count += 1

    def unlock(self, node: PrefixNode) -> None:
        """Undo one `lock`."""
        own = self._own(node)
        if own.lock_count == 0:
            raise ValueError("unlock of a node that is not locked")
        own.lock_count -= 1

    def evict(self, wanted: int) -> int:
        """Nothing is held, so nothing can be freed: 0."""
        return 0

    def reset(self) -> None:
        """Nothing to forget; still refused while requests run, as the contract says."""
        if self._root.lock_count:
            raise EngineStateError(f"{self._root.lock_count} running requests still use the prefix cache",
                                   where="reset", fix="let them finish or abort them first")

    def abandon(self) -> None:
        """No lock is held any more."""
        self._root = NaiveNode()

    @property
    def evictable(self) -> int:
        """Always 0."""
        return 0

    @property
    def protected(self) -> int:
        """Always 0."""
        return 0

    def held_slots(self) -> list[int]:
        """Always empty."""
        return []

    def snapshot(self) -> dict[str, object]:
        """The root alone."""
        root: dict[str, object] = {"ids": [], "slots": [], "lock_count": self._root.lock_count,
                                   "last_access": 0, "children": []}
        return {"nodes": [root]}

    def path(self, node: PrefixNode) -> tuple[list[int], list[int]]:
        """No ids and no slots lead to the root."""
        self._own(node)
        return [], []

    def check(self, locked: Iterable[PrefixNode]) -> None:
        """Prove that the root's lock count is the number of running requests."""
        running = len([self._own(node) for node in locked])
        if self._root.lock_count != running:
            raise IntegrityError(f"prefix cache root: lock count {self._root.lock_count}, "
                                 f"{running} running requests below")

    def _own(self, node: PrefixNode) -> NaiveNode:
        if node is not self._root:
            raise ValueError("the node is not in this cache: it belongs to another one")
        return self._root
