"""The proof that the KV pool's books balance: every slot has one owner, every lock one holder.

Called after every test of the runtime, and cheap enough to call after every step of one. It only reads: to
look does not disturb the order of eviction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from torch import Tensor

from shared_runtime.errors import IntegrityError
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool
from shared_runtime.prefix_cache import PrefixCache
from shared_runtime.request import Request


def check_integrity(pool: TokenToKVPool, table_pool: ReqToTokenPool, cache: PrefixCache,
                    running: Iterable[Request], in_flight: Sequence[Tensor] = ()) -> None:
    """Prove that pool, table, cache, running requests and passes in flight agree.

    Between two steps: free list, cache, the running requests' own slots and those that passes in flight write to are
    disjoint and together exactly 1..size; the rows in use are those of the running requests; every running request's
    prefix is locked in the cache and lies in the cache's slots; lock counts and sums of the cache are right.

    Args:
        pool: the KV slots. table_pool: which of them a request uses, by position.
        cache: holds prefixes. running: every request that has a table row.
        in_flight: slots that a pass is writing to; they are nobody's until it is done.

    Raises:
        IntegrityError: naming what differs.
    """
    reqs = list(running)
    rows = [_row(req) for req in reqs]
    _check_rows(table_pool, rows)
    slots = [table_pool.table[row, :req.kv_len].tolist() for row, req in zip(rows, reqs, strict=True)]
    _check_owners(pool, cache, reqs, slots, [slot for some in in_flight for slot in some.tolist()])
    cache.check([req.last_node for req in reqs if req.last_node is not None])
    if cache.evictable + cache.protected != len(cache.held_slots()):
        raise IntegrityError(f"the cache holds {len(cache.held_slots())} slots but counts {cache.evictable} "
                             f"evictable and {cache.protected} protected")
    for req, used in zip(reqs, slots, strict=True):
        _check_prefix(cache, req, used)


def _row(req: Request) -> int:
    if req.table_row is None:
        raise IntegrityError(f"request {req.rid} is running without a table row")
    return req.table_row


def _check_rows(table_pool: ReqToTokenPool, rows: list[int]) -> None:
    used = set(range(table_pool.size)) - set(table_pool.free_rows())
    if sorted(rows) != sorted(used):
        raise IntegrityError(f"table rows in use are {sorted(used)}, running requests have {sorted(rows)}")


def _check_owners(pool: TokenToKVPool, cache: PrefixCache, reqs: list[Request],
                  slots: list[list[int]], in_flight: list[int]) -> None:
    owners: dict[str, list[int]] = {"the free list": pool.free_slots(), "the cache": cache.held_slots(),
                                    "a pass in flight": in_flight}
    for req, used in zip(reqs, slots, strict=True):
        owners[f"request {req.rid}"] = used[req.prefix_len:]
    count = Counter(slot for owned in owners.values() for slot in owned)
    everything = range(1, pool.size + 1)
    wrong = {
        "owned by nobody": [slot for slot in everything if slot not in count],
        "owned twice": sorted(slot for slot, times in count.items() if times > 1),
        "not slots of the pool": sorted(slot for slot in count if slot not in everything),
    }
    for what, which in wrong.items():
        if which:
            holders = [name for name, owned in owners.items() if not set(which).isdisjoint(owned)]
            raise IntegrityError(f"{len(which)} KV slots are {what}: {which[:8]}"
                                 + (f", held by {' and '.join(holders)}" if holders else ""))


def _check_prefix(cache: PrefixCache, req: Request, used: list[int]) -> None:
    if not 0 <= req.prefix_len <= req.kv_len <= req.total_len:
        raise IntegrityError(f"request {req.rid}: prefix_len {req.prefix_len}, kv_len {req.kv_len} and "
                             f"{req.total_len} tokens are out of order")
    ids, slots = ([], []) if req.last_node is None else cache.path(req.last_node)
    if len(ids) != req.prefix_len:
        raise IntegrityError(f"request {req.rid}: its lock covers {len(ids)} tokens, "
                             f"its prefix has {req.prefix_len}")
    if ids != req.all_ids[:req.prefix_len]:
        raise IntegrityError(f"request {req.rid}: its locked prefix is of other tokens than its own")
    if slots != used[:req.prefix_len]:
        raise IntegrityError(f"request {req.rid}: its table row does not hold the slots of its locked prefix")
