"""Row 4: a finished request goes into the tree with its last token, whose keys and values were never computed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from shared_runtime import kv_memory
from shared_runtime.kv_handover import hand_over
from shared_runtime.memory_pool import TokenToKVPool
from shared_runtime.prefix_cache import PrefixCache
from shared_runtime.request import Request
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, memory, request, unbroken
from tests.museum.exhibit import Exhibit, Injection

HandOver = Callable[..., None]


def hand_over_all_ids(cache: PrefixCache, pool: TokenToKVPool, table: Tensor, req: Request, *, running: bool) -> None:
    """Specimen of `hand_over`: n ids with the slots of the n-1 tokens that have any."""
    if running:
        hand_over(cache, pool, table, req, running=True)
        return
    if req.table_row is not None:
        cache.insert(req.all_ids, table[req.table_row, :req.kv_len].to(dtype=torch.int64, copy=True))
    if req.last_node is not None:
        cache.unlock(req.last_node)
    req.last_node, req.prefix_len, req.kv_len = None, 0, 0


def as_many_ids_as_slots(hand: HandOver, bench: Bench) -> None:
    """A request with a prompt of three and two output tokens ends: what the tree gets can all be evicted again."""
    kv = memory()
    req = request(prompt_ids=[5, 6, 7])
    assert kv.attach(req, 2)
    slots = kv.take(4)
    assert slots is not None
    kv.write(req, slots)
    req.output_ids, req.kv_len = [8, 9], 4  # the KV of the last token does not exist yet
    with unbroken("the tree was given more ids than slots"):
        hand(kv.cache, kv.pool, kv.tables.table, req, running=False)
    kv.tables.free(req.table_row if req.table_row is not None else 0)
    evictable = kv.cache.evictable
    hold(kv.cache.evict(evictable) == evictable == 4 and kv.pool.available == kv.pool.size, "the tree's books drift")


def scenario(bench: Bench) -> None:
    """One request to its end."""
    engine = bench.engine(1)
    with unbroken("a finished request cannot go into the tree"):
        bench.run(engine, [Ask("x")])
    engine.check_integrity()


EXHIBIT: Exhibit[HandOver] = Exhibit(
    4, hand_over_all_ids, {"runtime": hand_over}, as_many_ids_as_slots, "more ids than slots",
    Injection(kv_memory, "hand_over", hand_over_all_ids, scenario, "cannot go into the tree"))
