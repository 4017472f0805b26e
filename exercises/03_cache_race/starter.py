"""Exercise 3: a compile cache without a race."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Cache:
    """What was built for a pattern, for any number of threads.

    Args:
        build: returns what belongs to a pattern, or raises; may take long. timeout: seconds that `get` waits at most.
    """

    def __init__(self, build: Callable[[str], Any], timeout: float) -> None:
        self.build = build
        self.timeout = timeout

    def get(self, pattern: str) -> Any:
        """What belongs to a pattern; built once, however many ask.

        Raises:
            GrammarTimeoutError: it is not there after `timeout` seconds. What the build raised.
        """
        raise NotImplementedError("TODO: one build for each pattern, and an end to all waiting")
