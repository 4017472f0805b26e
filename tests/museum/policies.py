"""The stages' own policies, for the invariants that hold for every generation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor

from shared_runtime.constraint import ConstraintKind
from shared_runtime.policy import AdmitState, SampledRow, StageContext, StagePolicy, StageSpec
from shared_runtime.request import Request
from tests.conformance.harness import TARGETS, Target
from tests.museum.bench import PATIENCE_S, Bench, Broken, sampled
from tests.museum.exhibit import Injection

PolicyBuild = Callable[[StageContext], StagePolicy]


def policies(kind: ConstraintKind = "regex") -> dict[str, PolicyBuild]:
    """Every stage with every backend that serves `kind`, by name."""
    return {str(target): _build(target) for target in TARGETS if target.supports(kind)}


def _build(target: Target) -> PolicyBuild:
    return lambda context: target.spec.build(replace(context, backend=target.backend))


def ready(policy: StagePolicy, *reqs: Request) -> None:
    """Admit requests and wait for their grammars.

    Raises:
        JumpforwardError: what one was rejected with.
    """
    for req in reqs:
        admission = policy.admit(req)
        deadline = time.monotonic() + PATIENCE_S * 5
        while admission.state is AdmitState.COMPILING:
            admission = next((answer for polled, answer in policy.poll() if polled is req), admission)
            if time.monotonic() > deadline:
                raise Broken(f"request {req.rid} is still compiling")
            time.sleep(0.001)
        if admission.error is not None:
            raise admission.error


def into_stage(package: ModuleType, build: PolicyBuild, scenario: Callable[[Bench], None], symptom: str) -> Injection:
    """The injection of a whole policy: the stage `package` is built by `build`."""
    spec = package.STAGE
    assert isinstance(spec, StageSpec)
    return Injection(package, "STAGE", replace(spec, build=build), scenario, symptom)


def masks(policy: StagePolicy, width: int, *reqs: Request, draft: tuple[int, ...] = ()) -> Tensor:
    """[requests, width] bool: what each may get next; with a draft [len(draft) + 1, width], of the one request."""
    batch = sampled(*reqs)
    if draft:
        batch.sampled, batch.ahead = [*reqs] * (len(draft) + 1), [draft[:count] for count in range(len(draft) + 1)]
    logits = torch.zeros((len(batch.sampled), width))
    policy.constrain(logits, batch, batch.positions)
    return torch.isfinite(logits)


def feed(policy: StagePolicy, req: Request, *token_ids: int) -> None:
    """Give a request tokens, as after sampling them."""
    for token_id in token_ids:
        result = policy.accept(sampled(req), [SampledRow(req, (token_id,))])[0]
        if result.error is not None:
            raise result.error
        req.output_ids.append(token_id)
        req.origins.append("sampled")
