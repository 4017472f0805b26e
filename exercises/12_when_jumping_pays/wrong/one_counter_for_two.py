"""Counts every token as one that was sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("12_when_jumping_pays").Forecast


class Forecast(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def counts(self, story: Sequence[tuple[str, bool]]) -> dict[str, int]:
        """A pass for each byte, jumped or not."""
        found: dict[str, int] = super().counts(story)
        return found | {"passes": 1 + sum(len(text.encode()) for text, _ in story)}
