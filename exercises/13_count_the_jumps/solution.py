"""Exercise 13: count the jumps in the real history."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from history.clone import Clone
from history.errors import HistoryError


class Functions(ast.NodeVisitor):
    """What code defines, and what it calls from outside of a function of that name."""

    def __init__(self) -> None:
        self.defined: set[str] = set()
        self.called: set[str] = set()
        self.inside: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A function or a method."""
        self.defined.add(node.name)
        self.inside.append(node.name)
        self.generic_visit(node)
        self.inside.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Call(self, node: ast.Call) -> None:
        """A call, by name or of an attribute."""
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
        if name is not None and name not in self.inside:
            self.called.add(name)
        self.generic_visit(node)


def survey(clone: Clone, ref: str, word: str, folders: Sequence[str]) -> dict[str, Any]:
    """Where a word was before a commit and after it, and which functions nobody calls any more."""
    after = clone.resolve(ref)
    return {"lines": lines(clone, after, word, folders), "unreachable": unreachable(clone, after, word, folders)}


def lines(clone: Clone, after: str, word: str, folders: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Per folder, before and after."""
    try:
        before = clone.resolve(f"{after}^")  # of the hash: a version has no `^`
    except HistoryError:
        before = None
    return {folder: (0 if before is None else counted(clone, before, word, folder),
                     counted(clone, after, word, folder)) for folder in folders}


def counted(clone: Clone, commit: str, word: str, folder: str) -> int:
    """Lines with the word."""
    return sum(clone.count(word, commit, [folder]).values())


def unreachable(clone: Clone, commit: str, word: str, folders: Sequence[str]) -> list[str]:
    """Names that are defined and not called."""
    found = Functions()
    for folder in folders:
        for path in clone.line_counts(commit, folder):
            if path.endswith(".py"):
                read(found, clone.text(commit, path))
    return sorted(name for name in found.defined - found.called if word in name)


def read(found: Functions, text: str) -> None:
    """Add a file."""
    try:
        found.visit(ast.parse(text))
    except (SyntaxError, ValueError):
        return
