"""What has been compiled, and what could not be: by constraint, within a memory limit (ours: upstream's only grows)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from shared_runtime.constraint import Constraint

V = TypeVar("V")


class GrammarCache(Generic[V]):
    """Forgets the least recently used when `limit_bytes` is passed; the newest value stays however large it is.

    Not locked, and not for compiling threads: touched only at points that every rank reaches with the same values in
    the same order. A hit that depended on a thread's speed made ranks part (museum row 43, until #6188).

    Args:
        size: about how many bytes a value holds.
        limit_bytes: how many all values may hold.
    """

    def __init__(self, size: Callable[[V], int], limit_bytes: int = 256 << 20) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self._size = size
        self._values: OrderedDict[Constraint, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Constraint) -> V | None:
        """What is known of `key`, None when nothing is."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: Constraint, value: V) -> None:
        """Keep a value, in place of what was known of `key`."""
        old = self._values.pop(key, None)
        if old is not None:
            self.total_bytes -= self._weigh(key, old)
        self._values[key] = value
        self.total_bytes += self._weigh(key, value)
        while self.total_bytes > self.limit_bytes and len(self._values) > 1:
            self.total_bytes -= self._weigh(*self._values.popitem(last=False))

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()
        self.total_bytes = 0

    def _weigh(self, key: Constraint, value: V) -> int:
        return len(key.source) + sum(map(len, key.choices)) + self._size(value)
