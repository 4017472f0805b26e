"""Leaves the end to the library, which knows one token for it."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

right: Any = answer_of("08_backend_adapter")


class Grammar(right.Grammar):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def allowed(self) -> Any:
        """The others stay as they were."""
        flags = super().allowed()
        flags[sorted(self.vocabulary.stop_ids - {self.program.tokens.end})] = 0
        return flags


class Backend(right.Backend):  # type: ignore[misc]  # as above
    """PocketRE."""

    grammar = Grammar
