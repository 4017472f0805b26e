"""Looks, builds, and puts: three steps that others come between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from shared_runtime.errors import GrammarTimeoutError


class Cache:
    """A dictionary, and a build when it has nothing."""

    def __init__(self, build: Callable[[str], Any], timeout: float) -> None:
        self.build = build
        self.timeout = timeout
        self._known: dict[str, Any] = {}

    def get(self, pattern: str) -> Any:
        """Built by whoever finds nothing."""
        if pattern in self._known:
            return self._known[pattern]
        errors: list[Exception] = []

        def fill() -> None:
            try:
                self._known[pattern] = self.build(pattern)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=fill, daemon=True)
        thread.start()
        thread.join(self.timeout)
        if thread.is_alive():
            raise GrammarTimeoutError("too long", where="constraint")
        if errors:
            raise errors[0]
        return self._known[pattern]
