"""Compares versions as texts, as upstream did."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("07_two_versions").Shim


class Shim(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def is_todays(self) -> bool:
        """As texts, 0.10 is older than 0.2."""
        super().is_todays()
        return bool(self.version("outlines_core") >= "0.2")
