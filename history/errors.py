"""What can go wrong while reading a clone."""

from __future__ import annotations

from shared_runtime.errors import ConfigError, JumpforwardError


class HistoryError(JumpforwardError):
    """The clone does not have what was asked for, or does not give it."""


class NoCloneError(ConfigError):
    """A command needs a clone of SGLang and none was named, or what was named is none."""
