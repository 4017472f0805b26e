"""Exercise 3: a compile cache without a race."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shared_runtime.errors import GrammarTimeoutError


@dataclass
class Entry:
    """One pattern. `done` is set once, after `result` or `error`."""

    done: threading.Event = field(default_factory=threading.Event)
    result: Any = None
    error: BaseException | None = None


class Cache:
    """What was built for a pattern, for any number of threads."""

    def __init__(self, build: Callable[[str], Any], timeout: float) -> None:
        self.build = build
        self.timeout = timeout
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}

    def get(self, pattern: str) -> Any:
        """What belongs to a pattern; built once, however many ask."""
        with self._lock:
            entry = self._entries.get(pattern)
            first = entry is None
            if entry is None:
                entry = self._entries[pattern] = Entry()
        if first:
            threading.Thread(target=self._fill, args=(pattern, entry), daemon=True).start()
        if not entry.done.wait(self.timeout):
            raise GrammarTimeoutError(f"compiling took longer than {self.timeout:g} s", where="constraint")
        if entry.error is not None:
            raise entry.error
        return entry.result

    def _fill(self, pattern: str, entry: Entry) -> None:
        try:
            entry.result = self.build(pattern)
        except BaseException as error:  # on a thread of its own, where nobody else would hear of it
            entry.error = error
        finally:
            entry.done.set()
