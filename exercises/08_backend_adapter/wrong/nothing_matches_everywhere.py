"""Believes the library about tokens that spell nothing."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

right: Any = answer_of("08_backend_adapter")


class Grammar(right.Grammar):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def allowed(self) -> Any:
        """They match everywhere."""
        flags = super().allowed()
        spelled = self.program.tokens.texts
        flags[[one for one, text in enumerate(spelled) if not text and one not in self.vocabulary.stop_ids]] = 1
        return flags


class Backend(right.Backend):  # type: ignore[misc]  # as above
    """PocketRE."""

    grammar = Grammar
