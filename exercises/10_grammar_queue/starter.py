"""Exercise 10: a grammar queue with a time limit and abort."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

Outcome = Any
"""A grammar, or the exception that its requests end with."""


class Queue:
    """Grammars that are being compiled, and who waits for them. All of it runs on one thread, and nothing blocks.

    Args:
        submit: hands a compile in. timeout: seconds that one may take. clock: the time in seconds.
    """

    def __init__(self, submit: Callable[[Any], Future[Any]], timeout: float, clock: Callable[[], float]) -> None:
        self.submit = submit
        self.timeout = timeout
        self.clock = clock

    def admit(self, rid: str, key: Any) -> Outcome | None:
        """What is known of the key; None when the request has to wait."""
        raise NotImplementedError("TODO: the three methods. Begin with what you must remember of a key")

    def poll(self) -> list[tuple[str, Outcome]]:
        """Who need not wait any more, with what came of it. Never blocks."""
        raise NotImplementedError("this one is yours, too")

    def cancel(self, rid: str) -> None:
        """The request waits no more. Idempotent."""
        raise NotImplementedError("this one is yours, too")
