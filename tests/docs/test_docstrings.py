"""The API page gives every name of a docstring an entry of its own, with the type that the code gives it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import griffe
import pytest

from scripts.site.docstrings import OneNameAnEntry, separated
from scripts.site.page import ROOT

CODE = '''
class Span:
    """A piece.

    Attributes:
        start, count: where it begins, and how many
            there are: one at least. low: the least.
        high: the most. Note: not a name.
    """

    start: int
    count: int
    low: float
    high: float

    def cut(self, at: int, deep: bool) -> str:
        """Cut it.

        Args:
            at: where. deep: all the way.

        Raises:
            ValueError, TypeError: it cannot be cut.
        """
'''


Sections = dict[str, list[tuple[str, str, str]]]


@pytest.fixture
def sections(tmp_path: Path) -> Callable[[str], Sections]:
    """What the parser finds in the docstring of an object of `CODE`: name, type and text of each entry."""
    (tmp_path / "spans.py").write_text(CODE, encoding="utf-8")
    module = griffe.load("spans", search_paths=[tmp_path], extensions=griffe.load_extensions(OneNameAnEntry))

    def found(name: str) -> Sections:
        docstring = module[name].docstring
        assert docstring is not None
        return {part.kind.value: [(getattr(one, "name", ""), str(one.annotation), one.description)
                                  for one in part.value]
                for part in docstring.parse("google") if part.kind.value != "text"}

    return found


def test_each_name_has_its_own_entry_and_type(sections: Callable[[str], Sections]) -> None:
    told = "where it begins, and how many there are: one at least."
    assert sections("Span")["attributes"] == [
        ("start", "int", told), ("count", "int", told), ("low", "float", "the least."),
        ("high", "float", "the most. Note: not a name.")]


def test_parameters_and_errors_too(sections: Callable[[str], Sections]) -> None:
    assert sections("Span.cut") == {
        "parameters": [("at", "int", "where."), ("deep", "bool", "all the way.")],
        "raises": [("", "ValueError", "it cannot be cut."), ("", "TypeError", "it cannot be cut.")]}


def test_what_stands_behind_a_section_stays() -> None:
    assert separated("One.\n\nArgs:\n    a, b: two.\n\nMore.", {"a", "b"}) == (
        "One.\n\nArgs:\n    a: two.\n    b: two.\n\nMore.")


@pytest.mark.parametrize("module", ["engine", "constraint", "sampling_params", "config", "result", "errors", "policy",
                                    "trace"])
def test_no_attribute_of_the_api_has_another_ones_name_as_its_type(module: str) -> None:
    assert f"::: shared_runtime.{module}\n" in (ROOT / "docs/en/api.md").read_text(encoding="utf-8")
    loaded = griffe.load(f"shared_runtime.{module}", search_paths=[ROOT],
                         extensions=griffe.load_extensions(OneNameAnEntry))
    for one in loaded.members.values():
        if isinstance(one, griffe.Class) and one.docstring is not None:
            for part in one.docstring.parse("google"):
                if part.kind is griffe.DocstringSectionKind.attributes:
                    assert {entry.name for entry in part.value} <= set(one.members), one.path
