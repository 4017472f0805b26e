"""Waits as long as it takes."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("10_grammar_queue").Queue


class Queue(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def __init__(self, submit: Any, timeout: float, clock: Any) -> None:
        super().__init__(submit, float("inf"), clock)
