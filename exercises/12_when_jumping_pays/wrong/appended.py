"""Appends the forced text in tokens of its own."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("12_when_jumping_pays").Forecast


class Forecast(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def encoded(self, text: bytes, ids: list[int]) -> list[int]:
        """What has come stays."""
        come: bytes = self.tokenizer.vocabulary.decode(ids)
        return [*ids, *self.tokenizer.spell(text[len(come):].decode())]
