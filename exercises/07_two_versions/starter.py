"""Exercise 7: one file for two versions of a library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Shim:
    """What a stage needs of Outlines, whichever of the two is installed.

    Args:
        load: imports a module by its name. version: the installed release of a package, as text.
    """

    def __init__(self, load: Callable[[str], Any], version: Callable[[str], str]) -> None:
        self.load = load
        self.version = version

    def schema_regex(self, schema: dict[str, Any] | str, whitespace: str) -> str:
        """The regex of a JSON schema.

        Raises:
            ConfigError: no release that is served is installed.
        """
        raise NotImplementedError("TODO: find out which of the two it is, then ask it; begin with this method")

    def guide(self, regex: str, tokenizer: Any) -> Any:
        """A guide at the beginning of the regex: `allowed()`, `take(token_id)`, `complete`.

        Raises:
            ConfigError: no release that is served is installed.
        """
        raise NotImplementedError("this one is yours, too: a small class for each shape will help")
