"""Takes back by the library's own way back."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

right: Any = answer_of("08_backend_adapter")


class Grammar(right.Grammar):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def _rollback_text(self, k: int) -> None:
        self.matcher.unwind(k)
        del self.ids[len(self.ids) - k:]


class Backend(right.Backend):  # type: ignore[misc]  # as above
    """PocketRE."""

    grammar = Grammar
