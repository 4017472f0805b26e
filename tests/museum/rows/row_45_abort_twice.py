"""Row 45: a request that has no grammar (any more) is let go of as if it had one."""

from __future__ import annotations

import contextlib

from shared_runtime.constraint import Constraint
from shared_runtime.errors import JumpforwardError
from shared_runtime.request import Request
from stages import stage1_copied_fsm
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy, RequestState
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, request, unbroken
from tests.museum.exhibit import Exhibit
from tests.museum.policies import PolicyBuild, into_stage, policies, ready


class ReleasesOnce(CopiedFSMPolicy):
    """Specimen of a stage's policy: `release` looks into the grammar before it drops it."""

    def release(self, req: Request, reason: str) -> None:
        """Let go of the FSM."""
        assert isinstance(req.grammar, RequestState), f"'{type(req.grammar).__name__}' object has no grammar to cancel"
        req.grammar = None


def an_abort_is_idempotent(build: PolicyBuild, bench: Bench) -> None:
    """Twice, also of a request that was refused, and of one that nobody knows."""
    policy = build(bench.context())
    good, bad, unknown = request(Constraint.regex("[0-9]")), request(Constraint.regex("("), rid="bad"), request(rid="x")
    ready(policy, good)
    with unbroken("a bad request is not refused"), contextlib.suppress(JumpforwardError):
        ready(policy, bad)
    with unbroken("the second abort crashed"):
        for req in (good, bad, unknown):
            for _ in range(2):
                policy.cancel(req.rid)
                policy.release(req, "abort")


def scenario(bench: Bench) -> None:
    """A refused request, aborted while a free one runs."""
    engine = bench.engine(1)
    with unbroken("ending a request without a grammar killed the loop"):
        bench.run(engine, [Ask("x", Constraint.regex("(")), Ask("y")])


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    45, ReleasesOnce, policies(), an_abort_is_idempotent, "the second abort crashed",
    into_stage(stage1_copied_fsm, ReleasesOnce, scenario, "killed the loop"))
