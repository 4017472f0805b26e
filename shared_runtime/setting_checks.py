"""What a setting may be. Settings come from JSON, the command line and people, so their types are checked too."""

from __future__ import annotations

import math

from shared_runtime.errors import ConfigError


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """One of a few words. Raises ConfigError, as all here."""
    if value not in allowed:
        raise ConfigError(f"{value!r} is not one of {', '.join(allowed)}", where=name)


def check_whole(name: str, value: object, least: int = 1) -> None:
    """A whole number, `least` or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"must be a whole number of at least {least}, not {value!r}", where=name)


def check_seconds(name: str, value: object) -> None:
    """A time: 0 or more, without an end allowed."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < 0:
        raise ConfigError(f"must be a number of seconds, not {value!r}", where=name)


def check_flags(**values: object) -> None:
    """True or False each, and not something that counts as one of them."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ConfigError(f"must be true or false, not {value!r}", where=name)


def check_kind(name: str, value: object, kind: type, *, optional: bool = True) -> None:
    """Of that class, or None where it is `optional`."""
    if not isinstance(value, kind) and not (optional and value is None):
        raise ConfigError(f"must be a {kind.__name__}{' or None' if optional else ''}, not {value!r}", where=name)
