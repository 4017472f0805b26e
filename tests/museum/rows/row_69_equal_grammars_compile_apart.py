"""Row 69: a compile that is under way is not shared, so N requests with one new grammar start N of them."""

from __future__ import annotations

from shared_runtime.constraint import Constraint
from shared_runtime.policy import Admission
from shared_runtime.request import Request
from stages.stage5_backend_jump import decoder
from stages.stage5_backend_jump.grammar_manager import GrammarManager, PendingGrammar
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import ROOMS, Clock, Gate, RoomBuild, room_of, settle


class NothingShared(GrammarManager):
    """Specimen of `GrammarManager`: each request that finds no grammar in the cache has a compile of its own."""

    def admit(self, req: Request) -> Admission:
        """Out of sight of those that wait already."""
        waiting: dict[Constraint, PendingGrammar] = self._pending
        self._pending = {}
        admission = super().admit(req)
        for key, pending in self._pending.items():
            if key in waiting:
                pending.waiting = waiting[key].waiting + pending.waiting
        self._pending = waiting | self._pending
        return admission


def one_key_is_built_once(build: RoomBuild, bench: Bench) -> None:
    """Eight requests, one grammar."""
    gate = Gate()
    room = build(bench, gate, Clock())
    for index in range(8):
        room.admit(request(Constraint.regex("a"), rid=f"r{index}"))
    gate.opened.set()
    hold(len(settle(room, 8)) == 8, "not every request got the grammar")
    hold(gate.begun == 1, f"one grammar was compiled {gate.begun} times")


def scenario(bench: Bench) -> None:
    """The same in an engine."""
    engine = bench.engine(5)
    bench.run(engine, [Ask("x", Constraint.regex("[0-9]"))] * 8)
    policy = engine.parts.policy
    assert isinstance(policy, decoder.GrammarManagerPolicy)
    hold(policy.manager.builds == 1, f"one grammar was compiled {policy.manager.builds} times")


EXHIBIT: Exhibit[RoomBuild] = Exhibit(
    69, room_of(NothingShared), ROOMS, one_key_is_built_once, "one grammar was compiled",
    Injection(decoder, "GrammarManager", NothingShared, scenario, "one grammar was compiled 8 times"))
