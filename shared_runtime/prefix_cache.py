"""The contract of a prefix cache: which tokens' keys and values are already there, and who holds them.

Slot ownership. A KV slot belongs to exactly one of: the pool's free list, the cache, or one running request
(those past its `prefix_len`). A request *uses* the cache's slots of its prefix; it keeps them from eviction
by a lock on the node where the prefix ends. `integrity.check_integrity` proves this after every test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class PrefixNode(Protocol):
    """A node of the cache; opaque to all but the cache."""

    @property
    def lock_count(self) -> int:
        """Running requests whose prefix passes through this node."""
        ...


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """The longest cached prefix of some ids.

    Attributes:
        slots: [matched] int64 KV slots, in order; the cache's own.
        node: where the match ends. `matched` equals the sum of edge lengths from the root to it.
    """

    slots: Tensor
    node: PrefixNode


class PrefixCache(Protocol):
    """A map from token prefixes to KV slots, with reference counts and eviction."""

    @property
    def shares(self) -> bool:
        """True when what is inserted can be matched again. False only for `NaiveCache`, the tests' oracle."""
        ...

    def match(self, ids: Sequence[int]) -> PrefixMatch:
        """The longest cached prefix of `ids`. An edge that matches only partly is split there.

        Touches what it passes (least recently used goes first). Does not lock: lock the node before the next
        `evict`, or it may be gone.
        """
        ...

    def insert(self, ids: Sequence[int], slots: Tensor) -> int:
        """Put `ids` with their `slots` in; both of one length.

        Returns:
            How many leading tokens the cache had already. It takes ownership of `slots` past that; of the
            leading ones it keeps its own, and the caller frees those of its own that differ.

        Raises:
            ValueError: the lengths differ (upstream's #4: n ids went in with n-1 slots).
        """
        ...

    def lock(self, node: PrefixNode) -> None:
        """Keep `node` and everything above it from eviction; counted.

        Raises:
            ValueError: the node is not in this cache (any more).
        """
        ...

    def unlock(self, node: PrefixNode) -> None:
        """Undo one `lock`.

        Raises:
            ValueError: the node is not in this cache, or not locked.
        """
        ...

    def evict(self, wanted: int) -> int:
        """Free at least `wanted` slots into the pool, least recently used leaves first; locked ones stay.

        Returns:
            How many were freed; less than `wanted` when no more may go.
        """
        ...

    def reset(self) -> None:
        """Forget everything and free every slot.

        Raises:
            EngineStateError: a node is locked.
        """
        ...

    def abandon(self) -> None:
        """Forget everything, locks too, and free nothing: whoever calls it clears the pool as well."""
        ...

    @property
    def evictable(self) -> int:
        """Slots that `evict` could free now."""
        ...

    @property
    def protected(self) -> int:
        """Slots under a lock."""
        ...

    def held_slots(self) -> list[int]:
        """Every slot the cache owns, for the integrity check."""
        ...

    def snapshot(self) -> dict[str, object]:
        """The tree as JSON values, for the trace.

        `{"nodes": [...]}`, the root first and every node before its children; per node `ids`, `slots`,
        `lock_count`, `last_access` (ticks of the cache's own clock) and `children` (indices into the list). A
        list and not a nesting: a long chain of nodes would be too deep for a JSON writer.
        """
        ...

    def path(self, node: PrefixNode) -> tuple[list[int], list[int]]:
        """Ids and slots from the root to `node`. Touches nothing.

        Raises:
            ValueError: the node is not in this cache (any more).
        """
        ...

    def check(self, locked: Iterable[PrefixNode]) -> None:
        """Prove the cache's own books, given the nodes that running requests hold, one entry a request.

        Raises:
            IntegrityError: naming the first node, count or sum that is wrong.
        """
        ...
