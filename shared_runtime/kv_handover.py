"""How a request's KV passes to the prefix cache: while it runs, for others to share, and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shared_runtime.errors import IntegrityError
from shared_runtime.prefix_cache import PrefixCache
from shared_runtime.request import Request

if TYPE_CHECKING:
    from shared_runtime.memory_pool import TokenToKVPool


def hand_over(cache: PrefixCache, pool: TokenToKVPool, table: Tensor, req: Request, *, running: bool) -> None:
    """Give the cache the slots of the `kv_len` tokens that `req` has computed.

    Call it before anything rewrites the request's ids: the slots belong to the ids they were computed from.
    Slots past `kv_len` (of drafts that were refused, say) are not looked at; the caller frees them first.

    Running, after a prefill or a chunk of one: the request goes on with the cache's slots for the same
    tokens. Its own duplicates are freed, its table row is rewritten, its lock moves down, and `prefix_len`
    is `kv_len`. With a cache that does not share, everything stays as it is.

    Not running (finished, retracted, taken out of a batch): the request keeps nothing; `last_node` is
    unlocked and None, `prefix_len` and `kv_len` are 0. Its table row is the caller's to free. A request that
    was never in a batch holds nothing, and nothing happens.

    Args:
        cache: takes the slots. pool: gets the duplicates back.
        table: [rows, max_len] of `ReqToTokenPool`; row `req.table_row` is read, and rewritten when running.
        req: the request. running: whether it goes on.

    Raises:
        ValueError: the request has fewer ids than `kv_len`.
        IntegrityError: the cache lost a part of the prefix that the request had locked.
    """
    if running and not cache.shares:
        return
    ids = req.all_ids[:req.kv_len]
    if req.table_row is not None:
        _insert(cache, pool, table[req.table_row, :req.kv_len], ids, req)
    if running:
        _go_on_with_the_cache(cache, table, ids, req)
    else:
        _let_go(cache, req)


def _insert(cache: PrefixCache, pool: TokenToKVPool, row: Tensor, ids: list[int], req: Request) -> None:
    # A copy: the row is about to be rewritten or lent to another request.
    slots = row.to(dtype=torch.int64, copy=True)
    already = cache.insert(ids, slots)
    if already < req.prefix_len:
        raise IntegrityError(
            f"request {req.rid}: the cache has {already} tokens of its locked prefix of {req.prefix_len}")
    if already > req.prefix_len:
        pool.free(slots[req.prefix_len:already])


def _go_on_with_the_cache(cache: PrefixCache, table: Tensor, ids: list[int], req: Request) -> None:
    match = cache.match(ids)
    if len(match.slots) != req.kv_len:
        raise IntegrityError(
            f"request {req.rid}: inserted {req.kv_len} tokens, found {len(match.slots)} of them again")
    table[req.table_row, :req.kv_len] = match.slots.to(table.dtype)
    # The new lock first: between the two the old path would be open to eviction.
    cache.lock(match.node)
    if req.last_node is not None:
        cache.unlock(req.last_node)
    req.last_node = match.node
    req.prefix_len = req.kv_len


def _let_go(cache: PrefixCache, req: Request) -> None:
    if req.last_node is not None:
        cache.unlock(req.last_node)
    req.last_node = None
    req.prefix_len = 0
    req.kv_len = 0
