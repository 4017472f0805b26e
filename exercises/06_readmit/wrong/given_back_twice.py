"""A request keeps what it held, so that a second release finds what the first did."""

from __future__ import annotations

from shared_runtime.kv_memory import KVMemory
from shared_runtime.request import Request
from tests.museum.rows.row_49_memory_given_back_twice import KeepsAHandle

_handles: dict[str, int] = {}


def release(memory: KVMemory, req: Request) -> None:
    """The museum's specimen, with its handles kept beside."""
    held = KeepsAHandle(memory.pool, memory.tables, memory.cache, _handles)
    if req.table_row is not None:
        _handles[req.rid] = req.table_row
    real = KVMemory.release
    if req.table_row is None and req.rid in _handles:
        held.tables.free(_handles[req.rid])
    elif real is not release:
        real(held, req)
