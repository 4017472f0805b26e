"""An end to all waiting, without a clock: whether a thread will ever come back is seen from whether anything moves."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from jumpforward.exercises.case import Wrong

R = TypeVar("R")
_TASKS = Path("/proc/self/task")
_STATUS = re.compile(r"^State:\s+(\S).*^voluntary_ctxt_switches:\s+(\d+)", re.DOTALL | re.MULTILINE)
_STEP_S = 0.005
_STILL = 100
"""Looks in a row, some half a second: who sleeps through all of them sleeps for good."""
_PATIENCE = 800
"""Looks after which it is enough in any case: for what spins, and for a system that does not tell what threads do.

Looks and not seconds: a process that is suspended meanwhile is not blamed for it.
"""
_ARRIVED, _ARRIVED_UNSEEN = 3, 20
"""Looks that it takes to know that every thread waits; more of them where that cannot be seen."""


class Stillness:
    """How many looks in a row found every other thread of this process asleep, and none woken in between."""

    def __init__(self) -> None:
        self.looks = 0
        self._before: dict[str, str] | None = None

    def look(self) -> int:
        """Look once more, and wait a moment."""
        now = _sleepers()
        self.looks = self.looks + 1 if now is not None and now == self._before else 0
        self._before = now
        time.sleep(_STEP_S)
        return self.looks


def _sleepers() -> dict[str, str] | None:
    """Per thread but this one, how often it went to sleep; None when one is awake, or when nobody can tell."""
    found, own = {}, str(threading.get_native_id())
    for task in _TASKS.glob("*"):
        status = None
        with contextlib.suppress(OSError):  # it may have ended just now
            status = _STATUS.search((task / "status").read_text())
        if status is None or (task.name != own and status[1] not in "SD"):
            return None
        if task.name != own:
            found[task.name] = status[2]
    return found


def until(holds: Callable[[], bool], message: Callable[[], str]) -> None:
    """Wait for something that must come; raise `Wrong` when it never will: every thread sleeps, and none wakes."""
    still = Stillness()
    for _ in range(_PATIENCE):
        if holds():
            return
        if still.look() >= _STILL:
            break
    if not holds():
        raise Wrong(message())


def settled() -> None:
    """Wait until every other thread waits for something."""
    still = Stillness()
    for _ in range(_PATIENCE if _sees() else _ARRIVED_UNSEEN):
        if still.look() >= _ARRIVED:
            return


def _sees() -> bool:
    """Whether this system tells what threads do."""
    try:
        return _STATUS.search((_TASKS / str(threading.get_native_id()) / "status").read_text()) is not None
    except OSError:
        return False


def in_time(call: Callable[[], R], message: str) -> R:
    """What `call` returns or raises; `Wrong` when it will do neither."""
    came: list[R] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            came.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    until(lambda: not thread.is_alive(), lambda: message)
    if errors:
        raise errors[0]
    return came[0]
