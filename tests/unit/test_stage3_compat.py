"""The living price of a dependency: versions, lazy imports, and what today's library gets wrong and we work around."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest
from outlines_core import Guide, Index, Vocabulary

from shared_runtime.errors import ConfigError
from stages.stage3_outlines.compat import REPAIRS, SCHEMA_BUILDERS, installed, parse_version, schema_regex, since


def test_versions_are_compared_as_numbers() -> None:
    """Museum row 23: as texts, "0.0.100" is older than "0.0.35", and took the old branch."""
    assert "0.0.100" < "0.0.35"
    assert parse_version("0.0.100") > parse_version("0.0.35") > parse_version("0.0.4")
    table = {"0.0.4": "oldest", "0.0.35": "old", "0.1": "new"}
    assert [since(version, table) for version in ("0.0.4", "0.0.34", "0.0.100", "0.1.11", "1.3.3")] == [
        "oldest", "oldest", "old", "new", "new"]
    assert parse_version("1.3.0rc1.post2") == (1, 3, 0)


def test_the_repairs_are_in_order_of_release() -> None:
    releases = [parse_version(release) for release, *_ in REPAIRS]
    assert releases == sorted(releases)


@pytest.mark.parametrize("package", ["outlines", "outlines_core"])
def test_the_installed_versions_are_those_the_adapters_are_for(package: str) -> None:
    found = parse_version(installed(package))
    assert ((1, 3) if package == "outlines" else (0, 2, 14)) <= found < ((2,) if package == "outlines" else (0, 3))
    assert since(installed("outlines"), SCHEMA_BUILDERS) == "outlines.types.dsl"


def test_a_missing_package_is_one_line_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ConfigError, match=r"needs the package outlines.*pip install"):
        schema_regex('{"type": "null"}', "compact")


def test_importing_the_stage_imports_no_library_and_a_schema_warns_of_nothing() -> None:
    code = """
import sys, warnings
warnings.simplefilter("error")
from stages.stage3_outlines.decoder import STAGE
libraries = {"outlines", "outlines_core", "interegular", "transformers", "jsonschema"}
assert not libraries & set(sys.modules), libraries & set(sys.modules)
from stages.stage3_outlines.compat import schema_regex
assert schema_regex('{"type": "null"}', "compact") == "null"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def _reachable(index: Index, ids: list[int], end: int) -> bool:
    """Whether the index takes the ids, and `end` behind them."""
    return bool(Guide(index).accepts_tokens([*ids, end]))


@pytest.mark.parametrize(("pattern", "ids"), [("1+(\\.1+)?", [1, 2, 1]), ("1|1\\.", [1, 2]), ("(1\\.)?", [1, 2])])
def test_the_library_loses_texts_and_the_terminator_brings_them_back(pattern: str, ids: list[int]) -> None:
    """Rule 1 and 2 of the library's losses. When the first assertion fails, the terminator can go."""
    tokens: dict[bytes, list[int]] = {b"1": [1], b".": [2]}
    assert not _reachable(Index(pattern, Vocabulary(0, tokens)), ids, 0)
    end = "\U0004fffe"
    mended = Index(f"({pattern}){end}", Vocabulary(0, {**tokens, end.encode(): [3]}))
    assert _reachable(mended, ids, 3)
    assert not _reachable(mended, [2], 3)
