"""Every exhibit, found by its file's name."""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import AbstractContextManager
from typing import Any

from tests.museum import rows
from tests.museum.exhibit import Exhibit


def all_exhibits() -> list[Exhibit[Any]]:
    """The exhibits, by row."""
    names = sorted(module.name for module in pkgutil.iter_modules(rows.__path__) if module.name.startswith("row_"))
    found = []
    for name in names:
        exhibit = importlib.import_module(f"{rows.__name__}.{name}").EXHIBIT
        assert isinstance(exhibit, Exhibit)
        assert name.startswith(f"row_{exhibit.row:02}_")
        found.append(exhibit)
    return found


def specimen(row: int) -> AbstractContextManager[None]:
    """A `with` in which a whole stage has the bug of a row: what is run or recorded there can be stepped through.

    Raises:
        LookupError: there is no such row, or no way into a stage (`jumpforward museum show` says why).
    """
    injection = next((exhibit.injection for exhibit in all_exhibits() if exhibit.row == row), None)
    if injection is None:
        raise LookupError(f"row {row} has no specimen that gets into a stage")
    return injection.in_place()
