"""Row 51: a constrained request meets an assertion on a server without a grammar backend."""

from __future__ import annotations

from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import Admission, AdmitState
from shared_runtime.request import Request
from stages.stage5_backend_jump import decoder
from stages.stage5_backend_jump.grammar_manager import GrammarManager
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request, unbroken
from tests.museum.exhibit import Exhibit, Injection

ManagerClass = type[GrammarManager]


class AssertsABackend(GrammarManager):
    """Specimen of `GrammarManager`."""

    def admit(self, req: Request) -> Admission:
        """Nobody asks for a grammar without a backend, does one."""
        assert self._backend is not None, "a grammar without a backend"
        return super().admit(req)


def no_request_reaches_an_assertion(manager_class: ManagerClass, bench: Bench) -> None:
    """A JSON schema, and no backend."""
    with unbroken("a request killed the server"):
        admission = manager_class(None, GrammarLimits()).admit(request(Constraint.json_schema({"type": "object"})))
    hold(admission.state is AdmitState.REJECTED and isinstance(admission.error, ConstraintError),
         "a constrained request is not refused without a backend")


def scenario(bench: Bench) -> None:
    """The same in an engine, beside a free request."""
    engine = bench.engine(5)
    policy = engine.parts.policy
    assert isinstance(policy, decoder.GrammarManagerPolicy)
    policy.manager = type(policy.manager)(None, GrammarLimits())
    with unbroken("a request killed the loop"):
        bound, free = bench.run(engine, [Ask("x", Constraint.regex("[0-9]")), Ask("y")])
    hold(isinstance(bound.error, ConstraintError) and free.error is None, f"a request met an assertion: {bound.error}")


EXHIBIT: Exhibit[ManagerClass] = Exhibit(
    51, AssertsABackend, {"stage5": GrammarManager}, no_request_reaches_an_assertion,
    "killed the server: AssertionError",
    Injection(decoder, "GrammarManager", AssertsABackend, scenario, "a request met an assertion"))
