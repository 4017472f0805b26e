"""All ids, with the slots of all but the newest."""

from __future__ import annotations

import torch

from shared_runtime.kv_memory import KVMemory
from shared_runtime.request import Request


def release(memory: KVMemory, req: Request) -> None:
    """A right answer with one mistake."""
    if req.table_row is None:
        return
    slots = memory.tables.table[req.table_row, :req.kv_len].to(torch.int64, copy=True)
    already = memory.cache.insert(req.all_ids, slots)
    if already > req.prefix_len:
        memory.pool.free(slots[req.prefix_len:already])
    if req.last_node is not None:
        memory.cache.unlock(req.last_node)
    memory.tables.free(req.table_row)
    req.table_row, req.last_node, req.prefix_len, req.kv_len = None, None, 0, 0
