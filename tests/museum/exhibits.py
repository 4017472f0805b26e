"""Every exhibit, found by its file's name."""

from __future__ import annotations

import importlib
import pkgutil
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
