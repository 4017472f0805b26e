"""Exercise 13: count the jumps in the real history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from history.clone import Clone
from history.errors import HistoryError

__all__ = ["HistoryError", "survey"]


def survey(clone: Clone, ref: str, word: str, folders: Sequence[str]) -> dict[str, Any]:
    """Where a word was before a commit and after it, and which functions nobody calls any more.

    Args:
        clone: a repository. ref: a commit, branch or version. word: part of lines, and of names.
        folders: where to look.

    Returns:
        "lines": per folder (before, after); "unreachable": names, sorted.
    """
    raise NotImplementedError("TODO: count the lines first; then read the files with ast")
