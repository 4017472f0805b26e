"""The KV pool, the table of who holds which slot, and the prefix cache, moved together.

The only place that moves a request in and out of memory; `integrity.check_integrity` proves its books.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shared_runtime.integrity import check_integrity
from shared_runtime.kv_handover import hand_over
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool
from shared_runtime.prefix_cache import PrefixCache
from shared_runtime.request import Request


@dataclass(slots=True)
class KVMemory:
    """Where keys and values live.

    Attributes:
        pool: the slots and their tensors. tables: which slots a running request uses, in order.
        cache: which prefixes are kept for whoever comes next.
    """

    pool: TokenToKVPool
    tables: ReqToTokenPool
    cache: PrefixCache

    @property
    def room(self) -> int:
        """Slots that can be had now: free ones, and those the cache would give up."""
        return self.pool.available + self.cache.evictable

    def take(self, count: int) -> Tensor | None:
        """[count] int64 slots, evicting cached prefixes for them when needed; None when there is no room."""
        if count > self.room:
            return None
        if count > self.pool.available:
            self.cache.evict(count - self.pool.available)
        return self.pool.alloc(count)

    def attach(self, req: Request, reusable: int) -> bool:
        """Give `req` a table row that starts with the longest cached prefix of its first `reusable` ids.

        Locks that prefix. Returns False, and changes nothing, when no row is free.
        """
        row = self.tables.alloc()
        if row is None:
            return False
        match = self.cache.match(req.all_ids[:reusable])
        self.cache.lock(match.node)
        matched = int(match.slots.numel())
        self.tables.table[row, :matched] = match.slots
        req.table_row, req.last_node = row, match.node
        req.prefix_len = req.kv_len = matched
        return True

    def write(self, req: Request, slots: Tensor, start: int | None = None) -> None:
        """Note the slots of the tokens behind `kv_len`, or from `start` on; a pass is about to fill them."""
        start = req.kv_len if start is None else start
        self.tables.table[req.table_row, start:start + slots.numel()] = slots

    def share(self, req: Request) -> None:
        """Hand what the request has computed to the cache, and let the request go on using it."""
        hand_over(self.cache, self.pool, self.tables.table, req, running=True)

    def release(self, req: Request) -> None:
        """Hand everything to the cache and forget the request. Does nothing when it holds nothing."""
        if req.table_row is None:
            return
        row = req.table_row
        hand_over(self.cache, self.pool, self.tables.table, req, running=False)
        self.tables.free(row)
        req.table_row = None

    def forget(self, req: Request) -> None:
        """The request holds nothing any more, whatever the books say of it; `start_afresh` comes next."""
        req.table_row = req.last_node = None
        req.prefix_len = req.kv_len = 0

    def start_afresh(self) -> None:
        """Every slot and row is free and nothing is cached. No request may hold memory, no pass be on its way."""
        self.pool.clear()
        self.tables.clear()
        self.cache.abandon()

    def usage(self) -> dict[str, int]:
        """Slots by owner, for the trace."""
        return {"size": self.pool.size, "free": self.pool.available,
                "evictable": self.cache.evictable, "protected": self.cache.protected}

    def check(self, running: list[Request], in_flight: Sequence[Tensor] = ()) -> None:
        """Prove that free list, cache, `running` and the passes in flight account for every slot and row.

        Raises:
            IntegrityError: naming the difference.
        """
        check_integrity(self.pool, self.tables, self.cache, running, in_flight)

    def no_slots(self) -> Tensor:
        """[0] int64 on the pool's device."""
        return torch.empty(0, dtype=torch.int64, device=self.tables.table.device)
