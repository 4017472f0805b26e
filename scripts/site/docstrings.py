"""Makes docstrings readable to the API page: `mkdocs.yml` names this file as an extension of Griffe.

In the code an entry may be about several names (`start, count: where and how many.`), and several short entries may
share a line (`low: the least. high: the most.`). The parser of Google's style knows neither and would take the second
name for a type, so each name is given an entry of its own before it reads them.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTION = re.compile(r"^(Args|Attributes|Raises):\n((?:(?: {4}.*)?(?:\n|\Z))+)", re.MULTILINE)
_ENTRY = re.compile(r"(?:^|(?<=[.;!?)] ))(\w+(?:, \w+)*): ")


class OneNameAnEntry(griffe.Extension):
    """Rewrites the sections of every docstring."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Called for every object, when all of its members are there."""
        if obj.docstring is not None:
            obj.docstring.value = separated(obj.docstring.value, names_of(obj))


def names_of(obj: griffe.Object) -> set[str]:
    """What a section of this object's docstring may be about: its parameters and its members."""
    parameters = getattr(obj, "parameters", ())
    return {one.name for one in parameters} | set(obj.members)


def separated(text: str, names: set[str]) -> str:
    """A docstring with one name an entry. Words that are not in `names` stay where they are; every error counts."""

    def section(found: re.Match[str]) -> str:
        title, body = found[1], found[2]
        known = None if title == "Raises" else names
        lines = [f"    {line}\n" for entry in _entries(body) for line in _split(entry, known)]
        return f"{title}:\n" + "".join(lines) + ("\n" if body.endswith("\n\n") else "")

    return _SECTION.sub(section, text)


def _entries(body: str) -> list[str]:
    """The entries of a section, each as one line: what is indented further goes on with the line before it."""
    entries: list[str] = []
    for line in body.splitlines():
        if line.startswith("     ") and entries:
            entries[-1] += f" {line.strip()}"
        elif line.strip():
            entries.append(line.strip())
    return entries


def _split(entry: str, names: set[str] | None) -> list[str]:
    starts = [found for found in _ENTRY.finditer(entry) if names is None or set(found[1].split(", ")) <= names]
    if not starts or starts[0].start():
        return [entry]
    ends = [found.start() for found in starts[1:]] + [len(entry)]
    return [f"{name}: {entry[found.end():end].strip()}" for found, end in zip(starts, ends, strict=True)
            for name in found[1].split(", ")]
