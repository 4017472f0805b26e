"""Hands the library's bits on as they are."""

from __future__ import annotations

from typing import Any

from exercises.answers import answer_of

right: Any = answer_of("08_backend_adapter")


class Grammar(right.Grammar):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def possible(self) -> Any:
        """The other order."""
        bits = super().possible()
        whole = -(-len(bits) // 8) * 8
        swapped = right.np.zeros(whole, dtype=right.np.uint8)
        swapped[:len(bits)] = bits
        return swapped.reshape(-1, 8)[:, ::-1].reshape(-1)[:len(bits)]


class Backend(right.Backend):  # type: ignore[misc]  # as above
    """PocketRE."""

    grammar = Grammar
