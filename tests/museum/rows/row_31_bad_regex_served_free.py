"""Row 31: a bad constraint is caught, and its request is then served without any."""

from __future__ import annotations

from shared_runtime import policy as contract
from shared_runtime.constraint import Constraint
from shared_runtime.errors import JumpforwardError
from shared_runtime.policy import AdmitState
from shared_runtime.request import Request
from stages import stage1_copied_fsm
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit
from tests.museum.policies import PolicyBuild, into_stage, policies, ready


class NoGuideIsFree(CopiedFSMPolicy):
    """Specimen of a stage's policy: an error while compiling is logged, and "no guide" means "no constraint"."""

    def admit(self, req: Request) -> contract.Admission:
        """Always ready."""
        if super().admit(req).state is AdmitState.REJECTED:
            req.constraint = None
        return contract.READY


def a_bad_constraint_is_an_error(build: PolicyBuild, bench: Bench) -> None:
    """The regex `(`, twice: both requests are refused."""
    policy = build(bench.context())
    for rid in ("first", "second"):
        try:
            ready(policy, request(Constraint.regex("("), rid=rid))
        except JumpforwardError:
            continue
        hold(False, "a request with a bad regex is served without a constraint")


def scenario(bench: Bench) -> None:
    """The regex `(` in an engine."""
    result = bench.run(bench.engine(1), [Ask("x", Constraint.regex("("))])[0]
    hold(result.error is not None, f"a bad regex was answered with free text, {result.text!r}")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    31, NoGuideIsFree, policies(), a_bad_constraint_is_an_error, "served without a constraint",
    into_stage(stage1_copied_fsm, NoGuideIsFree, scenario, "answered with free text"))
