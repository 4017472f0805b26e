"""What compiling a grammar may cost: the counter that every loop over a pattern's automaton checks.

A regex of twenty characters can ask for an automaton that fills the memory or takes an hour. So whoever builds
one counts its work here, and stops with an error that says which limit was reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from shared_runtime.errors import GrammarTimeoutError
from shared_runtime.grammar_limits import GrammarLimits

_WORK_PER_CLOCK_READ = 256


class Budget:
    """What one compile may still spend, in states, in memory and in seconds since it was made.

    Args:
        limits: `compile_timeout` and `max_states`; memory follows from the states.
        progress: told (what, done, total) now and then, on the thread that compiles.
    """

    def __init__(self, limits: GrammarLimits, progress: Callable[[str, int, int], None] | None = None) -> None:
        self.limits = limits
        self.progress = progress or (lambda _what, _done, _total: None)
        self._deadline = time.monotonic() + limits.compile_timeout
        self._until_clock = _WORK_PER_CLOCK_READ
        self._stored = 0

    def work(self, units: int = 1) -> None:
        """Count some work. Raises GrammarTimeoutError past `compile_timeout`."""
        self._until_clock -= units
        if self._until_clock <= 0:
            self._until_clock = _WORK_PER_CLOCK_READ
            if time.monotonic() > self._deadline:
                raise GrammarTimeoutError(
                    f"compiling took longer than {self.limits.compile_timeout:g} s", where="constraint",
                    fix="simplify the pattern or raise compile_timeout").blamed("unclear")

    def states(self, count: int, what: str) -> None:
        """Check the size of an automaton. Raises GrammarTimeoutError past `max_states`."""
        if count > self.limits.max_states:
            raise GrammarTimeoutError(
                f"the {what} automaton has more than {self.limits.max_states} states", where="constraint",
                fix="lower the counts in {n,m}, list fewer values, simplify the pattern, or raise max_states")

    def store(self, units: int) -> None:
        """Count what is kept (a unit is up to 64 bytes). Raises GrammarTimeoutError past 200 units a state."""
        self.work(units)
        self._stored += units
        if self._stored > 200 * self.limits.max_states:
            raise GrammarTimeoutError("the pattern's automaton does not fit in memory", where="constraint",
                                      fix="lower the counts in nested {n,m}, or raise max_states")
