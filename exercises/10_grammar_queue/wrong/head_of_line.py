"""Looks at the compiles in turn, and stops at the first that is not over."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("10_grammar_queue").Queue


class Queue(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def poll(self) -> list[tuple[str, Any]]:
        """As far as they are ready."""
        later: dict[Any, Any] = {}
        for key, pending in list(self.pending.items()):
            if later or not (pending.future.done() or self.clock() - pending.since >= self.timeout):
                later[key] = self.pending.pop(key)
        settled: list[tuple[str, Any]] = super().poll()
        self.pending |= later
        return settled
