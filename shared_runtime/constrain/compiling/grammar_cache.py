"""What has been compiled, and what could not be: by constraint, within a memory limit (ours: upstream's only grows)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from shared_runtime.constrain.compiling.failures import Refusal
from shared_runtime.constraint import Constraint
from shared_runtime.errors import JumpforwardError

V = TypeVar("V")

ENTRY_BYTES = 1024
"""About what an entry takes beside its value: a stream of tiny grammars, all refused, must not fill the memory."""


@dataclass(frozen=True, slots=True)
class _Entry(Generic[V]):
    value: V
    nbytes: int
    refusal: Refusal | None


class GrammarCache(Generic[V]):
    """Forgets the least recently used when `limit_bytes` is passed; the newest value stays however large it is.

    How long a refusal is remembered is the rule of `failures`.

    Not locked, and not for compiling threads: touched only at points that every rank reaches with the same values in
    the same order. A hit that depended on a thread's speed made ranks part (museum row 43, until #6188).

    Args:
        limit_bytes: how many all values may hold.
    """

    def __init__(self, limit_bytes: int = 256 << 20) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self._entries: OrderedDict[Constraint, _Entry[V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Constraint) -> V | None:
        """What is known of `key`; None when nothing is, or when a refusal is to be put to the test again."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.value if entry.refusal is None or entry.refusal.answers() else None

    def put(self, key: Constraint, value: V, nbytes: int) -> None:
        """Keep a grammar of about `nbytes` bytes, in place of what was known of `key`."""
        self._keep(key, _Entry(value, nbytes, None))

    def refuse(self, key: Constraint, value: V, error: JumpforwardError) -> None:
        """Keep `value`, which stands for a constraint that could not be served because of `error`."""
        earlier = self._entries.get(key)
        refusal = Refusal(error, earlier.refusal if earlier else None)
        self._keep(key, _Entry(value, len(str(error)), refusal))

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.total_bytes = 0

    def _keep(self, key: Constraint, entry: _Entry[V]) -> None:
        if key in self._entries:
            self.total_bytes -= _weight(key, self._entries.pop(key))
        self._entries[key] = entry
        self.total_bytes += _weight(key, entry)
        while self.total_bytes > self.limit_bytes and len(self._entries) > 1:
            self.total_bytes -= _weight(*self._entries.popitem(last=False))


def _weight(key: Constraint, entry: _Entry[V]) -> int:
    return ENTRY_BYTES + len(key.source) + sum(map(len, key.choices)) + entry.nbytes
