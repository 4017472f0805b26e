"""Lets go of whoever is aborted as if they waited."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("10_grammar_queue").Queue


class Queue(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def cancel(self, rid: str) -> None:
        """Looks the request up."""
        key = {one: key for key, pending in self.pending.items() for one in pending.waiting}[rid]
        self.pending[key].waiting.remove(rid)
        if not self.pending[key].waiting:
            self.pending.pop(key).future.cancel()
