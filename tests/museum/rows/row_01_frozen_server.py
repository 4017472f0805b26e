"""Row 1: the thread that compiles dies without a word, and the look-up waits for it for ever."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, GrammarSyntaxError
from stages.stage1_copied_fsm import decoder
from stages.stage1_copied_fsm.fsm import RegexFSM
from stages.stage1_copied_fsm.fsm_cache import FSMCache
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, Broken, in_time
from tests.museum.exhibit import Exhibit, Injection

CacheClass = Callable[[Callable[[str], RegexFSM], float], "FSMCache | EventOnlyCache"]


@dataclass
class _Entry:
    done: threading.Event = field(default_factory=threading.Event)
    fsm: RegexFSM | None = None


@dataclass
class EventOnlyCache:
    """Specimen of `FSMCache`: the event is set after the build, and only there."""

    build: Callable[[str], RegexFSM]
    timeout: float
    builds: int = 0
    _entries: dict[str, _Entry] = field(default_factory=dict)

    def get(self, pattern: str) -> RegexFSM:
        """The FSM of a pattern. The entry stays when its build dies: everyone after waits too."""
        if pattern not in self._entries:
            self.builds += 1
            self._entries[pattern] = _Entry()
            threading.Thread(target=self._fill, args=(pattern, self._entries[pattern]), daemon=True).start()
        entry = self._entries[pattern]
        entry.done.wait()
        assert entry.fsm is not None
        return entry.fsm

    def _fill(self, pattern: str, entry: _Entry) -> None:
        with contextlib.suppress(Exception):  # the thread is dead; who started it does not hear of it
            entry.fsm = self.build(pattern)
            entry.done.set()


def a_failed_build_wakes_its_waiters(cache_class: CacheClass, bench: Bench) -> None:
    """Whoever asks for a regex that cannot be built gets an error, the first time and the second."""

    def fails(pattern: str) -> RegexFSM:
        raise GrammarSyntaxError("missing )", where="constraint")

    cache = cache_class(fails, 10.0)
    for turn in ("first", "second"):
        try:
            in_time(lambda: cache.get("(ab"), f"the {turn} look-up of a bad regex never returned")
        except ConstraintError:
            continue
        raise Broken("a bad regex has an FSM")


def scenario(bench: Bench) -> None:
    """A bad regex in a running engine, then a good one."""
    engine = bench.engine(1)
    asks = [Ask("x", Constraint.regex(pattern)) for pattern in ("(ab", "ab")]
    bad, good = in_time(lambda: bench.run(engine, asks), "one bad regex froze the loop, and the request behind it")
    assert isinstance(bad.error, ConstraintError)
    assert good.text == "ab"


EXHIBIT: Exhibit[CacheClass] = Exhibit(
    1, EventOnlyCache, {"stage1": FSMCache}, a_failed_build_wakes_its_waiters, "look-up of a bad regex never returned",
    Injection(decoder, "FSMCache", EventOnlyCache, scenario, "one bad regex froze the loop"))
