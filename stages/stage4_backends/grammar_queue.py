"""From a constraint to its grammar: one compile per constraint in a pool of threads, and the requests that wait for it.

Upstream's queue (125b1199c5, #1996) polled every request in turn with a wait of 50 ms each, and stopped at the first
that was not ready, so one slow grammar held up all behind it. Here a poll waits for nobody and looks at everybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from shared_runtime import policy
from shared_runtime.config import usable_cores
from shared_runtime.constrain.compiling.compile_pool import CompileJob, CompilePool
from shared_runtime.constrain.compiling.failures import library_fault
from shared_runtime.constrain.compiling.grammar_cache import GrammarCache
from shared_runtime.constrain.compiling.ready_count import over_on_all
from shared_runtime.constraint import Constraint
from shared_runtime.errors import JumpforwardError
from shared_runtime.execution.rank_group import RankGroup, SingleRank
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.request import Request

from .base_grammar_backend import BaseGrammarBackend, BaseGrammarObject, Compiled


@dataclass(frozen=True, slots=True)
class Invalid:
    """A constraint that cannot be served, and why.

    Not None: upstream had one None for "not compiled yet", "invalid" and "no constraint", so a bad grammar was
    compiled anew by every request and then answered without a constraint (museum row 37).
    """

    error: JumpforwardError


@dataclass(slots=True)
class RequestState:
    """What the policy keeps of one request: `accepted` counts what `grammar` has taken, a stop token included."""

    grammar: BaseGrammarObject
    accepted: int = 0


class Absent(Enum):
    """The third value: nothing is known of a constraint yet."""

    ABSENT = "absent"


@dataclass(slots=True)
class Pending:
    """A constraint that is being compiled, and who waits for it in order of arrival."""

    job: CompileJob[Compiled]
    waiting: list[Request] = field(default_factory=list)


class GrammarQueue:
    """Answers `admit`, `poll` and `cancel`. Everything here runs on the scheduler's thread but the compiles.

    Args:
        backend: what compiles. limits: `compile_timeout` holds from when a thread takes a compile up.
        ranks: to agree with on what is over.

    Attributes:
        cache: what was compiled and what was refused; it has a memory limit (ours: upstream's only grows). How long
            a refusal is remembered: `shared_runtime/constrain/compiling/failures.py`.
        builds: compiles handed in so far.
    """

    def __init__(self, backend: BaseGrammarBackend, limits: GrammarLimits, ranks: RankGroup | None = None, *,
                 pool: CompilePool[Compiled] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.cache: GrammarCache[Compiled | Invalid] = GrammarCache()
        self.builds = 0
        self._backend = backend
        self._timeout = limits.compile_timeout
        self._ranks = ranks or SingleRank()
        self._pool = pool or CompilePool(workers=min(4, usable_cores()))
        self._clock = clock
        self._pending: dict[Constraint, Pending] = {}

    @property
    def stuck(self) -> int:
        """Compiles that were given up and still hold a thread."""
        return self._pool.stuck

    def known(self, key: Constraint) -> Compiled | Invalid | Absent:
        """What is known of a constraint: compiled, invalid, or nothing."""
        return self.cache.get(key) or Absent.ABSENT

    def admit(self, req: Request, key: Constraint) -> policy.Admission:
        """READY or REJECTED when the constraint is known; else it is compiled, once, and the request waits."""
        known = self.known(key)
        if not isinstance(known, Absent):
            return _grant(req, known)
        if key not in self._pending:
            self.builds += 1
            self._pending[key] = Pending(self._pool.submit(lambda: self._backend.init_value(key), key))
        self._pending[key].waiting.append(req)
        return policy.COMPILING

    def poll(self) -> list[tuple[Request, policy.Admission]]:
        """Requests whose grammar is there or has failed. Never blocks, but on a rank that another is ahead of."""
        settled: list[tuple[Request, policy.Admission]] = []
        for key, outcome in over_on_all(list(self._pending), self._look, self._ranks).items():
            value: Compiled | Invalid
            if isinstance(outcome, JumpforwardError):
                value = Invalid(outcome)
                self.cache.refuse(key, value, outcome)
            else:
                value = outcome
                self.cache.put(key, value, value.nbytes)
            settled += [(req, _grant(req, value)) for req in self._pending.pop(key).waiting]
        return settled

    def _look(self, key: Constraint) -> Compiled | JumpforwardError | None:
        return self._pool.outcome(self._pending[key].job, Compiled, self._timeout, self._clock())

    def cancel(self, rid: str) -> None:
        """A request waits no more; when nobody does, its compile is given up. Idempotent."""
        for key, pending in list(self._pending.items()):
            pending.waiting = [req for req in pending.waiting if req.rid != rid]
            if not pending.waiting:
                del self._pending[key]
                self._pool.abandon(pending.job)

    def reset(self) -> None:
        """Forget what was compiled (museum row 59). This is the only layer: the libraries' own caches are off."""
        self.cache.clear()
        self._pool.forget()


def _grant(req: Request, value: Compiled | Invalid) -> policy.Admission:
    """A place of its own in the grammar for this request; the cached one stays at its beginning."""
    if isinstance(value, Invalid):
        return policy.rejected(value.error)
    try:
        req.grammar = RequestState(value.grammar.copy())
    except BaseException as error:
        return policy.rejected(library_fault(error, req.rid))
    req.warnings += [text for text in value.warnings if text not in req.warnings]
    return policy.READY
