"""An entry for each pattern and a lock for its build; whoever waits, waits."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any


class Cache:
    """A lock for each pattern."""

    def __init__(self, build: Callable[[str], Any], timeout: float) -> None:
        self.build = build
        self.timeout = timeout
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._known: dict[str, Any] = {}

    def get(self, pattern: str) -> Any:
        """Under the pattern's own lock."""
        with self._lock:
            lock = self._locks[pattern]
        with lock:
            if pattern not in self._known:
                self._known[pattern] = self.build(pattern)
            return self._known[pattern]
