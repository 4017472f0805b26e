"""Looks at the request alone."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("12_when_jumping_pays").Forecast


class Forecast(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def crossover(self, neighbours: int) -> int:
        """Any jump saves a pass."""
        return 1
