"""Steps first, and looks at the state then."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

right: Any = answer_of("07_two_versions")


class Steps(right.Earlier):  # type: ignore[misc]  # the solution, of which no types are known here
    """A guide of 0.1."""

    state: int

    def take(self, token_id: int) -> bool:
        """A state of -1 is the end."""
        self.state = self.inner.get_next_state(self.state, token_id)
        self.ended = self.state == -1
        return True


class Shim(right.Shim):  # type: ignore[misc]  # as above
    """A right answer with one mistake."""

    def guide(self, regex: str, tokenizer: Any) -> Any:
        """Of 0.1: one that steps."""
        made = super().guide(regex, tokenizer)
        return Steps(made.inner, made.end) if isinstance(made, right.Earlier) else made
