"""Row 37: one None for "not compiled", "invalid" and "no constraint"."""

from __future__ import annotations

from shared_runtime.constraint import Constraint
from shared_runtime.policy import READY, Admission, AdmitState
from shared_runtime.request import Request
from stages.stage5_backend_jump import decoder
from stages.stage5_backend_jump.base_grammar_backend import InvalidGrammarObject
from stages.stage5_backend_jump.grammar_manager import GrammarManager
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.grammars import ROOMS, Clock, RoomBuild, refuses, room_of, settle


class NoneForEverything(GrammarManager):
    """Specimen of `GrammarManager`: a failed compile leaves None in the cache, and None as the request's grammar."""

    def admit(self, req: Request) -> Admission:
        """A None in the cache looks like a miss."""
        known = None if req.constraint is None else self.cache.get(req.constraint)
        if isinstance(known, InvalidGrammarObject):
            self.cache.clear()
        return super().admit(req)

    def poll(self) -> list[tuple[Request, Admission]]:
        """A request without a grammar runs as it is."""
        settled = super().poll()
        for req, admission in settled:
            if admission.state is AdmitState.REJECTED:
                req.constraint = None
        return [(req, READY) for req, _ in settled]


def an_invalid_grammar_is_refused_and_remembered(build: RoomBuild, bench: Bench) -> None:
    """A bad EBNF grammar, twice."""
    compiled: list[str] = []

    def counted(constraint: Constraint) -> None:
        compiled.append(constraint.source)
        refuses(constraint)

    room = build(bench, counted, Clock())
    first, second = (request(Constraint.ebnf("root ::= undefined"), rid=rid) for rid in ("first", "second"))
    room.admit(first)
    (_, admission), = settle(room, 1)
    hold(admission.state is AdmitState.REJECTED, "a request with an invalid grammar runs without a constraint")
    hold(room.admit(second).state is AdmitState.REJECTED, "the invalid grammar is compiled once more")
    hold(len(compiled) == 1, f"an invalid grammar was compiled {len(compiled)} times")


def scenario(bench: Bench) -> None:
    """The same in an engine."""
    result = bench.run(bench.engine(5), [Ask("x", Constraint.regex("("))])[0]
    hold(result.error is not None, f"an invalid grammar was answered with free text, {result.text!r}")


EXHIBIT: Exhibit[RoomBuild] = Exhibit(
    37, room_of(NoneForEverything), ROOMS, an_invalid_grammar_is_refused_and_remembered, "runs without a constraint",
    Injection(decoder, "GrammarManager", NoneForEverything, scenario, "answered with free text"))
