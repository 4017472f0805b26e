"""Exercise 10: a grammar queue with a time limit and abort."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from shared_runtime.errors import GrammarTimeoutError

Outcome = Any
"""A grammar, or the exception that its requests end with."""


@dataclass
class Pending:
    """A compile that is not over, since when, and who waits for it."""

    future: Future[Any]
    since: float
    waiting: list[str] = field(default_factory=list)


class Queue:
    """Grammars that are being compiled, and who waits for them. All of it runs on one thread, and nothing blocks."""

    def __init__(self, submit: Callable[[Any], Future[Any]], timeout: float, clock: Callable[[], float]) -> None:
        self.submit = submit
        self.timeout = timeout
        self.clock = clock
        self.known: dict[Any, Outcome] = {}
        self.pending: dict[Any, Pending] = {}

    def admit(self, rid: str, key: Any) -> Outcome | None:
        """What is known of the key; None when the request has to wait."""
        if key in self.known:
            return self.known[key]
        if key not in self.pending:
            self.pending[key] = Pending(self.submit(key), self.clock())
        self.pending[key].waiting.append(rid)
        return None

    def poll(self) -> list[tuple[str, Outcome]]:
        """Who need not wait any more, with what came of it. Never blocks."""
        settled: list[tuple[str, Outcome]] = []
        for key, pending in list(self.pending.items()):
            if pending.future.done():
                outcome = pending.future.exception() or pending.future.result()
            elif self.clock() - pending.since >= self.timeout:
                outcome = GrammarTimeoutError(f"compiling took longer than {self.timeout:g} s", where="constraint")
                pending.future.cancel()
            else:
                continue
            del self.pending[key]
            self.known[key] = outcome
            settled += [(rid, outcome) for rid in pending.waiting]
        return settled

    def cancel(self, rid: str) -> None:
        """The request waits no more. Idempotent."""
        for key, pending in list(self.pending.items()):
            if rid in pending.waiting:
                pending.waiting.remove(rid)
                if not pending.waiting:
                    pending.future.cancel()
                    del self.pending[key]
