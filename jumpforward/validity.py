"""Is an answer in the language that was asked for? Decided without the decoder that made it."""

from __future__ import annotations

import json
import subprocess
import sys

from shared_runtime.constraint import Constraint

# Python's matcher can take exponential time on some patterns and cannot be interrupted: it runs in a process of
# its own, which can be killed.
_FULLMATCH = """
import json, re, sys
pattern, text = json.load(sys.stdin)
print(re.fullmatch(pattern, text, re.ASCII) is not None)
"""


def is_valid(constraint: Constraint | None, text: str, *, timeout_s: float = 5.0) -> bool | None:
    """True or False where an independent check exists, None where none does or it ran longer than `timeout_s`.

    `regex` is Python's `re.fullmatch` with ASCII classes, as `docs/regex.md` defines the dialect; `choice` is
    membership.
    """
    if constraint is None:
        return None
    if constraint.kind == "choice":
        return text in constraint.choices
    if constraint.kind == "regex":
        return _full_match(constraint.source, text, timeout_s)
    return None


def _full_match(pattern: str, text: str, timeout_s: float) -> bool | None:
    command = [sys.executable, "-I", "-W", "ignore", "-c", _FULLMATCH]
    try:
        done = subprocess.run(command, input=json.dumps([pattern, text]), capture_output=True, text=True,
                              timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() == "True" if done.returncode == 0 else None
