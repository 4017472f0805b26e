"""One lock around everything, the build too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Cache:
    """Right answers, one at a time."""

    def __init__(self, build: Callable[[str], Any], timeout: float) -> None:
        self.build = build
        self.timeout = timeout
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}

    def get(self, pattern: str) -> Any:
        """Under the lock."""
        with self._lock:
            if pattern not in self._known:
                self._known[pattern] = self.build(pattern)
            return self._known[pattern]
