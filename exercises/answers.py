"""Solutions as modules, for the known-wrong answers that are a right one with a mistake."""

from __future__ import annotations

import importlib
from types import ModuleType


def answer_of(folder: str) -> ModuleType:
    """The solution of the exercise in `folder`."""
    return importlib.import_module(f"exercises.{folder}.solution")
