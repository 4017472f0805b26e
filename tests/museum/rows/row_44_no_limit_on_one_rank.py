"""Row 44: the time limit stands in the branch for several ranks, and an abort passes the queue by."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

from shared_runtime.constraint import Constraint
from shared_runtime.errors import GrammarTimeoutError
from shared_runtime.execution.rank_group import SingleRank
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import AdmitState
from stages.stage5_backend_jump import decoder
from stages.stage5_backend_jump.base_grammar_backend import BaseGrammarBackend
from stages.stage5_backend_jump.grammar_manager import GrammarManager, RankGroup
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import ROOMS, Clock, Gate, RoomBuild, room_of


class LimitForSeveralRanks(GrammarManager):
    """Specimen of `GrammarManager`: a group of one has no limit, and aborts are for requests that run."""

    def __init__(self, backend: BaseGrammarBackend | None, limits: GrammarLimits, group: RankGroup | None = None, *,
                 clock: Callable[[], float] = time.monotonic) -> None:
        if group is None or isinstance(group, SingleRank):
            limits = replace(limits, compile_timeout=math.inf)
        super().__init__(backend, limits, group, clock=clock)

    def cancel(self, rid: str) -> None:
        """A request that waits is not found."""


def waiting_ends(build: RoomBuild, bench: Bench) -> None:
    """Two requests with endless compiles: one is aborted, the other one's limit passes."""
    clock, gate = Clock(), Gate()
    room = build(bench, gate, clock)
    try:
        late, aborted = (request(Constraint.regex(rid), rid=rid) for rid in ("late", "aborted"))
        for req in (late, aborted):
            hold(room.admit(req).state is AdmitState.COMPILING, "an endless compile is ready")
        hold(room.poll() == [], "an endless compile is settled at once")
        room.cancel("aborted")
        clock.ahead = 60.0
        settled = room.poll()
    finally:
        gate.opened.set()
    hold(len(settled) > 0, "an endless compile is waited for beyond its limit")
    hold([req.rid for req, _ in settled] == ["late"], "an aborted request comes back from the queue")
    hold(isinstance(settled[0][1].error, GrammarTimeoutError), "the error does not say that the compile took too long")


def scenario(bench: Bench) -> None:
    """An engine whose library never comes back."""
    engine, gate = bench.engine(5, limits=GrammarLimits(compile_timeout=0.02)), Gate()
    policy = engine.parts.policy
    assert isinstance(policy, decoder.GrammarManagerPolicy)
    try:
        with patch.object(policy.backend, "init_value", gate):
            result = bench.run(engine, [Ask("x", Constraint.regex("[0-9]"))])[0]
    finally:
        gate.opened.set()
    hold(isinstance(result.error, GrammarTimeoutError), f"the compile was not given up: {result.error}")


EXHIBIT: Exhibit[RoomBuild] = Exhibit(
    44, room_of(LimitForSeveralRanks), ROOMS, waiting_ends, "waited for beyond its limit",
    Injection(decoder, "GrammarManager", LimitForSeveralRanks, scenario, "1 of 1 requests did not end"))
