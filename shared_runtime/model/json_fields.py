"""Reading a JSON object field by field, so that a wrong one is named with its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shared_runtime.errors import CheckpointError


def read_json_object(path: Path) -> dict[str, object]:
    """The object in a JSON file.

    Raises:
        CheckpointError: the file is missing, unreadable, not JSON, or holds something else than an object.
    """
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError("the file is missing", where=str(path),
                              fix="give a Hugging Face model folder with its config.json") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"the file cannot be read: {error}", where=str(path)) from error
    except json.JSONDecodeError as error:
        raise CheckpointError(f"not valid JSON: {error}", where=str(path),
                              fix="the download may be cut short; fetch it again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"holds a {type(value).__name__}, not an object", where=str(path))
    return value


@dataclass(frozen=True)
class JsonFields:
    """Typed access to a JSON object. `null` counts as absent, as in Hugging Face configs.

    Every method raises CheckpointError, naming file and field, on a value of another type; those without a
    default also on an absent one.

    Attributes:
        values: the object.
        where: its file, and the path of fields down to it.
    """

    values: Mapping[str, object]
    where: str

    def error(self, name: str, message: str, *, fix: str | None = None) -> CheckpointError:
        """A CheckpointError about the field `name`."""
        return CheckpointError(message, where=f"{self.where}: {name}", fix=fix)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number of at least `least`."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"must be a whole number, not {value!r}")
        if value < least:
            raise self.error(name, f"must be at least {least}, not {value}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number above zero."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"must be a number, not {value!r}")
        if not value > 0:
            raise self.error(name, f"must be above 0, not {value}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"must be true or false, not {value!r}")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self.error(name, f"must be a string, not {value!r}")
        return value

    def items(self, name: str) -> list[object]:
        """A list; empty when absent."""
        value = self._get(name, [])
        if not isinstance(value, list):
            raise self.error(name, f"must be a list, not {value!r}")
        return value

    def inner(self, name: str) -> JsonFields:
        """The object in the field; an empty one when absent."""
        value = self._get(name, {})
        if not isinstance(value, dict):
            raise self.error(name, f"must be an object, not {value!r}")
        return JsonFields(value, f"{self.where}: {name}")

    def _get(self, name: str, default: object) -> object:
        value = self.values.get(name)
        if value is None:
            value = default
        if value is None:
            raise self.error(name, "the field is missing", fix="complete the file, or fetch it again")
        return value
