"""Row 59: a flush empties what the library keeps, and not what lies above it."""

from __future__ import annotations

from shared_runtime.constraint import Constraint
from shared_runtime.policy import AdmitState
from stages.stage5_backend_jump import decoder
from stages.stage5_backend_jump.grammar_manager import GrammarManager
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import ROOMS, Clock, RoomBuild, compiles, room_of, settle
from tests.museum.policies import ready


class ResetsOneLayer(GrammarManager):
    """Specimen of `GrammarManager`: an override that does not call what it overrides."""

    def reset(self) -> None:
        """The library's own cache."""
        if self._backend is not None:
            self._backend.reset()


def a_flush_leaves_nothing(build: RoomBuild, bench: Bench) -> None:
    """Compile, ask again, flush, ask again."""
    room = build(bench, compiles, Clock())
    room.admit(request(Constraint.regex("a"), rid="first"))
    settle(room, 1)
    hold(room.admit(request(Constraint.regex("a"), rid="second")).state is AdmitState.READY, "there is no cache")
    room.reset()
    hold(room.admit(request(Constraint.regex("a"), rid="third")).state is AdmitState.COMPILING,
         "after the flush the grammar is still there")


def scenario(bench: Bench) -> None:
    """The same through the policy, by the number of compiles."""
    policy = decoder.GrammarManagerPolicy(bench.context())
    for rid in ("first", "second"):
        ready(policy, request(Constraint.regex("a"), rid=rid))
        policy.manager.reset()
    hold(policy.manager.builds == 2, "after the flush the grammar is still there")


EXHIBIT: Exhibit[RoomBuild] = Exhibit(
    59, room_of(ResetsOneLayer), ROOMS, a_flush_leaves_nothing, "the grammar is still there",
    Injection(decoder, "GrammarManager", ResetsOneLayer, scenario, "the grammar is still there"))
