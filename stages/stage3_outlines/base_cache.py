"""`BaseCache`: what the stage's caches share: one build per key, a bound, and figures that add up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from shared_runtime.constrain.compiling.failures import Refusal
from shared_runtime.errors import JumpforwardError


class Sized(Protocol):
    """What a cache can keep."""

    @property
    def nbytes(self) -> int:
        """Memory in bytes, about."""


Value = TypeVar("Value", bound=Sized)


class BaseCache(Generic[Value]):
    """Values by key; the least recently used is forgotten first (upstream kept everything). Any thread may ask.

    Attributes:
        hits, misses: calls that found a value, and calls that did not. build_s: seconds spent on building.
    """

    def __init__(self, max_entries: int = 1024, max_bytes: int = 512 << 20) -> None:
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Forget every value and every figure."""
        with self._lock:
            self._entries: dict[str, Value | Refusal] = {}
            self.hits, self.misses, self.build_s = 0, 0, 0.0

    @property
    def hit_rate(self) -> float:
        """Share of calls that found a value. Upstream counted calls on a miss only: 9.0 (museum row 11)."""
        return self.hits / max(1, self.hits + self.misses)

    @property
    def average_build_s(self) -> float:
        """Seconds that a build took on average."""
        return self.build_s / max(1, self.misses)

    def get(self, key: str, build: Callable[[], Value]) -> Value:
        """The value of `key`, built on the caller's thread at the first call; who asks meanwhile waits for it.

        Raises:
            JumpforwardError: what the build raised, now or before: a refusal is remembered by the rule of `failures`.
        """
        with self._lock:
            earlier = self._entries.pop(key, None)
            known = None if isinstance(earlier, Refusal) and not earlier.answers() else earlier
            self.hits, self.misses = self.hits + (known is not None), self.misses + (known is None)
            found = self._built(build, earlier) if known is None else known
            self._entries[key] = found  # at the end: most recently used
            while len(self._entries) > 1 and self._is_full():
                del self._entries[next(iter(self._entries))]
        if isinstance(found, Refusal):
            raise found.error.with_traceback(None)  # else the remembered error collects every caller's frames
        return found

    def _built(self, build: Callable[[], Value], earlier: Value | Refusal | None) -> Value | Refusal:
        started = time.perf_counter()
        try:
            return build()
        except JumpforwardError as error:
            return Refusal(error, earlier)
        finally:
            self.build_s += time.perf_counter() - started

    def _is_full(self) -> bool:
        held = sum(value.nbytes for value in self._entries.values() if not isinstance(value, Refusal))
        return len(self._entries) > self._max_entries or held > self._max_bytes
