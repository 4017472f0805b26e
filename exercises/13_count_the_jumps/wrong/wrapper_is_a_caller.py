"""Any call is a call."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from exercises.answers import answer_of
from history.clone import Clone

right: Any = answer_of("13_count_the_jumps")


class Functions(right.Functions):  # type: ignore[misc]  # the solution, of which no types are known here
    """A right answer with one mistake."""

    def visit_Call(self, node: ast.Call) -> None:
        """Wherever it is."""
        self.called.add(getattr(node.func, "attr", None) or getattr(node.func, "id", None))
        self.generic_visit(node)


def survey(clone: Clone, ref: str, word: str, folders: Sequence[str]) -> dict[str, Any]:
    """With a reader that does not know where it is."""
    with patch.object(right, "Functions", Functions):
        found: dict[str, Any] = right.survey(clone, ref, word, folders)
    return found
