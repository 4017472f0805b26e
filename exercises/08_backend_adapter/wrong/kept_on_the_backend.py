"""Keeps on itself what it compiles, as if it did one thing at a time."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

right: Any = answer_of("08_backend_adapter")


class Backend(right.Backend):  # type: ignore[misc]  # the solution, of which no types are known here
    """PocketRE."""

    def init_value(self, constraint: Any) -> Any:
        """In two steps."""
        self.compiled = super().init_value(constraint)
        return self.compiled
