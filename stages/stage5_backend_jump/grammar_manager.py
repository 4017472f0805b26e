"""From a request's constraint to its grammar: cache, compile queue, time limits, and what all ranks agree on.

Split out of the scheduler in 5b7bed7ca4 (#16820, 2026-01). Everything here runs on the scheduler's thread; only
`BaseGrammarBackend.init_value` runs on others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shared_runtime import policy
from shared_runtime.config import usable_cores
from shared_runtime.constrain.compiling.compile_pool import CompileJob, CompilePool
from shared_runtime.constrain.compiling.failures import library_fault
from shared_runtime.constrain.compiling.grammar_cache import GrammarCache
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, JumpforwardError, RequestError
from shared_runtime.execution.rank_group import SingleRank
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.request import Request

from .base_grammar_backend import BaseGrammarBackend, Compiled, InvalidGrammarObject

CacheValue = Compiled | InvalidGrammarObject


@dataclass(frozen=True, slots=True)
class Decision:
    """What one rank sees of the constraints that are being compiled, or what all ranks have agreed on.

    Attributes:
        ready: compiled. failed: raised, or past its time limit, with the error.
    """

    ready: frozenset[Constraint]
    failed: Mapping[Constraint, JumpforwardError]


class RankGroup(Protocol):
    """The ranks that must admit the same requests in the same turn. Each holds the same queue in the same order.

    All that this file asks of `shared_runtime.execution.rank_group.RankGroup`.
    """

    def from_each(self, value: Decision) -> Sequence[Decision]:
        """Every rank's decision, in rank order; returns on all ranks or on none."""
        ...


def agree(gathered: Sequence[Decision]) -> Decision:
    """Ready is what is ready everywhere, failed is what failed anywhere (e7dc85c50b, #17100).

    As sets. Counts, which were exchanged before, cannot name requests: where one rank is ahead they made another admit
    what it did not have (museum rows 36 and 56).
    """
    failed: dict[Constraint, JumpforwardError] = {}
    for decision in gathered:
        failed = dict(decision.failed) | failed  # the lowest rank's error, so that all report the same
    ready = frozenset.intersection(*(decision.ready for decision in gathered))
    return Decision(ready - failed.keys(), failed)


@dataclass(slots=True)
class PendingGrammar:
    """A constraint that is being compiled, once, and everybody who waits for it."""

    key: Constraint
    job: CompileJob[Compiled]
    waiting: list[Request] = field(default_factory=list)


class GrammarManager:
    """Answers `admit`, `poll` and `cancel` for the policy.

    Args:
        backend: what compiles; None for a server without one, which refuses every constraint by name.
        limits: `compile_timeout` holds per compile, from when a thread takes it up.
        group: the ranks to agree with.

    Attributes:
        cache: touched by `admit` (reading) and `poll` (writing) alone, at the same points on every rank. How long a
            refusal is remembered: `shared_runtime/constrain/compiling/failures.py`.
        builds: compiles handed in so far.
    """

    def __init__(self, backend: BaseGrammarBackend | None, limits: GrammarLimits,
                 group: RankGroup | None = None, *, pool: CompilePool[Compiled] | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._backend = backend
        self._limits = limits
        self._group = group or SingleRank()
        self._pool = pool or CompilePool(workers=min(4, usable_cores()))
        self._clock = clock
        self._pending: dict[Constraint, PendingGrammar] = {}
        self.cache: GrammarCache[CacheValue] = GrammarCache()
        self.builds = 0

    @property
    def stuck(self) -> int:
        """Compiles that were given up and still hold a thread."""
        return self._pool.stuck

    def admit(self, req: Request) -> policy.Admission:
        """A hit is READY or REJECTED at once; a miss waits, with everybody else who wants the same."""
        key = req.constraint
        if key is None:
            return policy.READY
        backend = self._backend
        try:
            _check_one_language(key)
            if backend is None:
                raise ConstraintError(f"no grammar backend is running, so {key.kind} cannot be served",
                                      where="constraint", fix="start with --backend xgrammar")
        except JumpforwardError as error:
            return policy.rejected(error)
        known = self.cache.get(key)
        if known is not None:
            return self._grant(req, known)
        pending = self._pending.get(key)
        if pending is None:
            job = self._pool.submit(lambda: backend.init_value(key), key)
            pending = self._pending[key] = PendingGrammar(key, job)
            self.builds += 1
        pending.waiting.append(req)
        return policy.COMPILING

    def poll(self) -> list[tuple[Request, policy.Admission]]:
        """Requests whose grammar is there, or has failed, on every rank; in the order they arrived. Never blocks."""
        if not self._pending:
            return []
        agreed = agree(self._group.from_each(self._local_decision()))
        settled: list[tuple[Request, policy.Admission]] = []
        for pending in [one for key, one in self._pending.items() if key in agreed.ready or key in agreed.failed]:
            value = self._settle(pending, agreed.failed.get(pending.key))
            settled += [(req, self._grant(req, value)) for req in pending.waiting]
        return settled

    def _settle(self, pending: PendingGrammar, error: JumpforwardError | None) -> CacheValue:
        """What all ranks make of a compile: out of the queue, into the cache."""
        del self._pending[pending.key]
        if error is None:
            compiled = pending.job.future.result()
            self.cache.put(pending.key, compiled, compiled.nbytes)
            return compiled
        self._pool.abandon(pending.job)  # it may have gone well on this rank
        invalid = InvalidGrammarObject(error)
        self.cache.refuse(pending.key, invalid, error)
        return invalid

    def cancel(self, rid: str) -> None:
        """Forget a waiting request, and the compile when nobody else waits for it. Idempotent (museum row 45)."""
        for key, pending in list(self._pending.items()):
            pending.waiting = [req for req in pending.waiting if req.rid != rid]
            if not pending.waiting:
                del self._pending[key]
                self._pool.abandon(pending.job)

    def reset(self) -> None:
        """Empty every layer: this cache, and what the library keeps by itself (museum row 59). Waiting ones stay."""
        self.cache.clear()
        self._pool.forget()
        if self._backend is not None:
            self._backend.reset()

    def _local_decision(self) -> Decision:
        """A compile that is past its limit here is given up here; as it then fails everywhere, on every rank."""
        ready, failed, now = set[Constraint](), dict[Constraint, JumpforwardError](), self._clock()
        for key, pending in self._pending.items():
            outcome = self._pool.outcome(pending.job, Compiled, self._limits.compile_timeout, now)
            if isinstance(outcome, JumpforwardError):
                failed[key] = outcome
            elif outcome is not None:
                ready.add(key)
        return Decision(frozenset(ready), failed)

    def _grant(self, req: Request, value: CacheValue) -> policy.Admission:
        """A copy of the grammar for this request, armed by its own parameters; the cached one stays as it is."""
        if isinstance(value, InvalidGrammarObject):
            return policy.rejected(value.error)
        try:
            grammar = value.grammar.copy()
            grammar.maybe_init_reasoning(req.sampling.thinking, req.sampling.thinking_budget)
        except BaseException as error:
            return policy.rejected(library_fault(error, req.rid))
        req.grammar = grammar
        req.warnings += [text for text in value.warnings if text not in req.warnings]
        return policy.READY


def _check_one_language(constraint: Constraint) -> None:
    """All kinds exclude each other (upstream's check left one out, so it was ignored in silence: museum row 68).

    Raises:
        RequestError: the constraint says two things.
    """
    if constraint.choices and constraint.kind != "choice":
        raise RequestError(f"a {constraint.kind} constraint with choices says two things", where="constraint",
                           fix="give one kind of constraint")
    if constraint.source and constraint.kind in ("choice", "json_object"):
        raise RequestError(f"a {constraint.kind} constraint with a source says two things", where="constraint",
                           fix="give one kind of constraint")
