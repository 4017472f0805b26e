"""Where there is an outlines_core, the library is taken for the newer one."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("07_two_versions").Shim


class Shim(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def is_todays(self) -> bool:
        """Tries the import."""
        super().is_todays()
        try:
            self.load("outlines_core")
        except ImportError:
            return False
        return True
