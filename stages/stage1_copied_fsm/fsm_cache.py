"""`FSMCache`: one compile per regex, on a thread of its own, and a blocking `get`.

Upstream started a thread per new regex and waited for its event at once, so nothing ever ran in the background.
A build that raised never set the event: the caller and everyone after it waited for ever (museum row 1; the
thread went in ca13f3b8c5, errors were caught from 840c5dbcb3 on). Here every build ends its entry, with an FSM or
an error, and nobody waits longer than the limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from shared_runtime.constrain.compiling.failures import Refusal, blame_of
from shared_runtime.errors import ConstraintError, GrammarTimeoutError, JumpforwardError

from .fsm import RegexFSM


@dataclass(eq=False)
class _Entry:
    """One regex. `done` is set once, after `fsm` or `refusal`; `given_up`, when somebody waited in vain.

    `earlier` is the refusal that this build puts to the test.
    """

    earlier: Refusal | None = None
    fsm: RegexFSM | None = None
    refusal: Refusal | None = None
    done: threading.Event = field(default_factory=threading.Event)
    given_up: bool = False

    def fail(self, error: JumpforwardError) -> None:
        """There is no FSM."""
        self.refusal = Refusal(error, self.earlier)


@dataclass(eq=False)
class FSMCache:
    """Compiled regexes, the least recently used forgotten first. Any thread may ask.

    Attributes:
        build: compiles a pattern; raises a JumpforwardError for one that it refuses. builds: how many it started.
        timeout: seconds that `get` waits at most.
        max_entries, max_bytes: how much is kept. Upstream kept everything.
    """

    build: Callable[[str], RegexFSM]
    timeout: float
    max_entries: int = 1024
    max_bytes: int = 512 << 20
    builds: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _entries: dict[str, _Entry] = field(default_factory=dict, init=False)

    def get(self, pattern: str) -> RegexFSM:
        """The FSM of a pattern, compiled at the first call; blocks until it is there.

        A refusal is remembered by the rule of `failures`. A build that was given up is not started again: as long as
        it runs, asking costs nothing, and what comes of it too late for one is there for the next.

        Raises:
            GrammarTimeoutError: it is not there after `timeout` seconds.
            JumpforwardError: what the build raised.
        """
        with self._lock:
            entry = self._entries.pop(pattern, None)
            started = entry is None or (entry.refusal is not None and not entry.refusal.answers())
            if entry is None or started:
                entry = _Entry(earlier=entry.refusal if entry else None)
                self.builds += 1
            self._entries[pattern] = entry  # at the end: most recently used
        if started:
            self._start(pattern, entry)
        if not entry.done.wait(0 if entry.given_up else self.timeout):
            entry.given_up = True  # nobody waits for it a second time, as long as it runs on
            raise GrammarTimeoutError(f"compiling took longer than {self.timeout:g} s", where="constraint",
                                      fix="simplify the pattern or raise compile_timeout")
        if entry.refusal is not None:
            raise entry.refusal.error.with_traceback(None)  # else the remembered error collects every caller's frames
        assert entry.fsm is not None
        return entry.fsm

    def _start(self, pattern: str, entry: _Entry) -> None:
        try:
            # A daemon: a compile in progress must not keep the process from ending.
            threading.Thread(target=self._fill, args=(pattern, entry), name="fsm-build", daemon=True).start()
        except RuntimeError as error:
            entry.fail(ConstraintError(f"no thread to compile on: {error}", where="constraint").blamed("machine"))
            entry.done.set()

    def _fill(self, pattern: str, entry: _Entry) -> None:
        try:
            try:
                entry.fsm = self.build(pattern)
            except JumpforwardError as error:
                entry.fail(error)
            except BaseException as error:  # on a thread of its own, where nobody else would hear of it
                entry.fail(ConstraintError(f"compiling failed: {type(error).__name__}: {error}",
                                           where="constraint").blamed(blame_of(error)))
            self._forget()
        finally:
            entry.done.set()

    def _forget(self) -> None:
        """Drop finished entries, the oldest first, until the rest fits; the newest stays."""
        with self._lock:
            held = sum(entry.fsm.nbytes for entry in self._entries.values() if entry.fsm)
            for pattern, entry in list(self._entries.items())[:-1]:
                if held <= self.max_bytes and len(self._entries) <= self.max_entries:
                    break
                if entry.done.is_set():
                    held -= entry.fsm.nbytes if entry.fsm else 0
                    del self._entries[pattern]
