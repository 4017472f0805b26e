"""A jump costs a pass of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("12_when_jumping_pays").Forecast


class Forecast(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def counts(self, story: Sequence[tuple[str, bool]]) -> dict[str, int]:
        """The pass that reads the forced text, and one for the next token."""
        found: dict[str, int] = super().counts(story)
        return found | {"passes": found["passes"] + found["jumps"]}
