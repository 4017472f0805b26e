"""Row 49: who meets the error gives the memory back, and whoever held the request then gives it back again."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared_runtime import assembly
from shared_runtime.kv_memory import KVMemory
from shared_runtime.request import Request
from tests.museum.bench import Bench, hold, memory, request, unbroken
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import ask

MemoryClass = type[KVMemory]


@dataclass(slots=True)
class KeepsAHandle(KVMemory):
    """Specimen of `KVMemory`: each caller has a handle of its own, so that a second release finds what the first did.

    (Upstream the second caller was the end of a transfer to another server.)
    """

    handles: dict[str, int] = field(default_factory=dict)

    def release(self, req: Request) -> None:
        """Give the row back that the request has, or had."""
        if req.table_row is None:
            req.table_row = self.handles.get(req.rid)
        else:
            self.handles[req.rid] = req.table_row
        KVMemory.release(self, req)


def released_once(memory_class: MemoryClass, bench: Bench) -> None:
    """A request in memory is released where it failed, and released where it was to end."""
    parts = memory()
    kv = memory_class(parts.pool, parts.tables, parts.cache)
    failed, other = request(rid="failed", prompt_ids=[5, 6]), request(rid="other", prompt_ids=[7, 8])
    rows = kv.tables.available
    assert kv.attach(failed, 1)
    slots = kv.take(2)
    assert slots is not None
    kv.write(failed, slots)
    failed.kv_len = 2
    kv.release(failed)
    assert kv.attach(other, 1)
    with unbroken("memory is given back twice"):
        kv.release(failed)
    hold(kv.tables.available == rows - 1, "memory is given back twice: it was another request's by then")


def scenario(bench: Bench) -> None:
    """A jump takes a request out of the batch, and reaches its length limit: it ends before it comes back."""
    engine = bench.engine(2)
    with unbroken("memory is given back twice"):
        result = bench.run(engine, [ask("[0-9]abcabcabc", max_new_tokens=3)])[0]
    hold(result.finish_reason == "length", "the case is not the one that it should be")
    engine.check_integrity()


EXHIBIT: Exhibit[MemoryClass] = Exhibit(
    49, KeepsAHandle, {"runtime": KVMemory}, released_once, "given back twice",
    Injection(assembly, "KVMemory", KeepsAHandle, scenario, "given back twice"))
