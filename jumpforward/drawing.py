"""Charts as SVG files, each with its text alternative inside and beside it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from shared_runtime.errors import ConfigError


def altair_for(command: str, folder: Path) -> Any:
    """The altair module, when it can write SVG; makes `folder`.

    Raises:
        ConfigError: a package is missing, or the folder cannot be made.
    """
    try:
        altair = importlib.import_module("altair")
        importlib.import_module("vl_convert")  # altair needs it to make SVG, and says so only then
    except ImportError as error:
        raise ConfigError(f"drawing needs altair and vl-convert-python: {error}", where=command,
                          fix="pip install -e '.[bench]'") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return altair


def save_chart(chart: Any, path: Path, text: str) -> Path:
    """Write a chart, `text` as its title, and `text` again into a file of its own.

    Raises:
        ConfigError: a file cannot be written.
    """
    try:
        chart.save(path, format="svg")
        titled = re.sub(r"<svg([^>]*)>", lambda found: f'<svg role="img"{found[1]}><title>{escape(text)}</title>',
                        path.read_text(encoding="utf-8"), count=1)
        path.write_text(titled, encoding="utf-8")
        path.with_suffix(".txt").write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def _unwritable(path: Path, error: OSError) -> ConfigError:
    """The error for a place that cannot be written to."""
    return ConfigError(f"cannot write there: {error.strerror}", where=str(path), fix="name another folder with --out")
