"""What failed is not remembered."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("10_grammar_queue").Queue


class Queue(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def poll(self) -> list[tuple[str, Any]]:
        """Forgets failures."""
        settled: list[tuple[str, Any]] = super().poll()
        for key in [key for key, one in self.known.items() if isinstance(one, Exception)]:
            del self.known[key]
        return settled
