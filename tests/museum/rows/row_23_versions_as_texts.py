"""Row 23: versions are compared as texts, so release 0.0.100 is older than 0.0.35."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from unittest.mock import patch

from stages.stage3_outlines import compat
from tests.museum.bench import Bench, hold, unbroken
from tests.museum.exhibit import Exhibit, Injection

Since = Callable[[str, Mapping[str, str]], str]
TABLE = {"0.0.4": "a_builder_of_old", "0.0.35": "a_builder_of_today"}


def since_as_text(version: str, table: Mapping[str, str]) -> str:
    """Specimen of `since`."""
    return table[max(known for known in table if known <= version)]


def a_later_release_takes_the_new_way(since: Since, bench: Bench) -> None:
    """Where a release number has more digits."""
    for version, wanted in (("0.0.35", "today"), ("0.0.100", "today"), ("0.0.34", "old"), ("0.0.4", "old")):
        with unbroken(f"no way for release {version}"):
            found = since(version, TABLE)
        hold(found == f"a_builder_of_{wanted}", f"release {version} takes {found}")


class _Builder(ModuleType):
    """A library that has moved."""

    JsonSchema = staticmethod(lambda text, blanks: text)
    to_regex = staticmethod(lambda schema: "(true|false)")


def scenario(bench: Bench) -> None:
    """A schema under release 0.0.100, where only the new module is there."""
    with patch.object(compat, "installed", lambda package: "0.0.100"), patch.object(compat, "SCHEMA_BUILDERS", TABLE), \
            patch.dict(sys.modules, {"a_builder_of_today": _Builder("a_builder_of_today")}), \
            unbroken("release 0.0.100 is taken for an old one"):
        compat.schema_regex('{"type": "boolean"}', "compact")


EXHIBIT: Exhibit[Since] = Exhibit(
    23, since_as_text, {"stage3": compat.since}, a_later_release_takes_the_new_way,
    "no way for release 0.0.100",
    Injection(compat, "since", since_as_text, scenario, "taken for an old one"))
