"""Counts characters."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("12_when_jumping_pays").Forecast


class Forecast(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def enough(self, rest: bytes) -> bool:
        """Characters, as in the first map."""
        return len(rest.decode("utf-8", "ignore")) >= int(self.least)
