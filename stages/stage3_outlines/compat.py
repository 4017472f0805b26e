"""Outlines as a dependency: what its releases broke, and the few names that this stage still takes from it.

Everything that touches the libraries is here or in `index_child.py`, because each release moved something. Nothing
is imported before a request needs it: `outlines` takes a second or two.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shared_runtime.constrain.schema import schema_regex as regular
from shared_runtime.errors import ConfigError, ConstraintError
from shared_runtime.policy import Whitespace

REPAIRS = (
    ("0.0.30", "2a74748b2f", "a release broke the import a week after the copy was deleted", "pin (#196, #200)"),
    ("0.0.32", "3c2c5869ad", "the schema builder takes text only, no object", "a shim makes text (#219)"),
    ("0.0.35", "77835756a7", "the tokenizer wrapper takes an object, no path", "compare version texts (#291)"),
    ("0.0.41", "9c902b1954", "the FSM class became a guide with instructions", "follow the rename (#517)"),
    ("0.0.44", "ad5f04d6ce", "byte symbols are spelled with a leading NUL", "read three characters (#551)"),
    ("0.1", "906d795f15", "a factory makes the guide, modules moved to outlines_core", "try both (#2292)"),
)
"""What Outlines cost upstream: release, commit of the repair, what broke, the answer."""

SCHEMA_BUILDERS: Mapping[str, str] = {
    "0": "outlines.fsm.json_schema", "0.1": "outlines_core.fsm.json_schema", "1": "outlines.types.dsl"}
"""Since which Outlines release the schema builder lives where."""


def parse_version(text: str) -> tuple[int, ...]:
    """The release numbers of a version, to compare as numbers. As texts, "0.0.4" is newer than "0.0.35" (row 23)."""
    numbers = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in numbers[0].split(".")) if numbers else ()


def since(version: str, table: Mapping[str, str]) -> str:
    """The entry of the newest release in `table` that is not newer than `version`."""
    return table[max((known for known in table if parse_version(known) <= parse_version(version)), key=parse_version)]


def installed(package: str) -> str:
    """The version of an installed package.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(f"stage 3 needs the package {package}", where="stage",
                          fix='pip install "jumpforward[backends]"').blamed("machine") from None


class Guide:
    """A request's own position in an index, by the names of today's library."""

    def __init__(self, index: object) -> None:
        self._guide = importlib.import_module("outlines_core").Guide(index)
        self.take(*self._guide.get_tokens())  # the one token that begins every text, START

    @property
    def state(self) -> int:
        """The number of the state."""
        return int(self._guide.get_state())

    def take(self, token_id: int) -> bool:
        """Advance by a token; False, and nothing changed, where it is not allowed."""
        try:
            self._guide.advance(token_id, return_tokens=False)
        except ValueError:
            return False
        return True

    def allows(self, token_id: int) -> bool:
        """Whether a token may come next."""
        return bool(self._guide.accepts_tokens([token_id]))

    def mask(self, width: int) -> NDArray[np.bool_]:
        """[width] bool: the tokens that may come next."""
        words = np.zeros(width // 32 + 2, dtype=np.int32)  # room for the ids of END and the library's own end
        self._guide.write_mask_into(words.ctypes.data, words.size, 4)
        return np.unpackbits(words.view(np.uint8), count=width, bitorder="little").view(np.bool_)


def schema_regex(source: str, whitespace: Whitespace) -> str:
    """The regex of a JSON schema, by Outlines, which is asked for one level at a time so that nothing is dropped.

    Raises:
        ConstraintError: the schema is no schema, or needs what a regex or the library cannot hold, or is too large.
    """
    return regular.schema_regex(source, whitespace, _by_outlines,
                                    library_depth="Outlines would cut it off after 2 or 3 levels, silently")


def _by_outlines(schema: str, blank: str) -> str:
    """The library has one pattern for all whitespace; given a mark, it shows where that goes."""
    library = importlib.import_module(since(installed("outlines"), SCHEMA_BUILDERS))
    try:
        return str(library.to_regex(library.JsonSchema(schema, blank)))
    except Exception as error:  # the library has no family of its own
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConstraintError(f"Outlines refuses the schema: {why}", where="json_schema") from None
