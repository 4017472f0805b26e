"""Counts every occurrence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exercises.answers import answer_of
from history.clone import Clone

right: Any = answer_of("13_count_the_jumps")


def survey(clone: Clone, ref: str, word: str, folders: Sequence[str]) -> dict[str, Any]:
    """In the texts, which are read whole."""
    found: dict[str, Any] = right.survey(clone, ref, word, folders)
    after = clone.resolve(ref)
    for folder in folders:
        many = sum(clone.text(after, path).count(word) for path in clone.line_counts(after, folder))
        found["lines"][folder] = (found["lines"][folder][0], many)
    return found
