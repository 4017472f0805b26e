"""Gives the tokenizer a padding token, as a wrapper of the library did."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

Right: Any = answer_of("07_two_versions").Shim


class Shim(Right):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def guide(self, regex: str, tokenizer: Any) -> Any:
        """Writes to what it is given."""
        tokenizer.pad_token_id = tokenizer.eos_token_id
        return super().guide(regex, tokenizer)
