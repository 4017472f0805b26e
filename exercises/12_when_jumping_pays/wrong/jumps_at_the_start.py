"""Jumps before anything was sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("12_when_jumping_pays").Forecast


class Forecast(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def counts(self, story: Sequence[tuple[str, bool]]) -> dict[str, int]:
        """The first byte of forced text is jumped with the rest."""
        found: dict[str, int] = super().counts(story)
        early = bool(story) and story[0][1] and found["jumps"] > 0
        return found | {"passes": found["passes"] - early}
