"""Row 28: the sampling info keeps a list of grammars of its own, and it is filtered apart from the requests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shared_runtime import policy as contract
from shared_runtime.constraint import Constraint
from shared_runtime.request import Request
from shared_runtime.schedule_batch import ScheduleBatch
from stages import stage1_copied_fsm
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy, RequestState
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit
from tests.museum.policies import PolicyBuild, into_stage, masks, policies, ready


class SecondListOfGrammars(CopiedFSMPolicy):
    """Specimen of a stage's policy: grammars in a list beside the batch; who leaves is filtered out of it by index."""

    def __init__(self, context: contract.StageContext) -> None:
        super().__init__(context)
        self._batch: list[Request] = []
        self._grammars: list[object] = []

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """Bring the list up to date, then mask by it."""
        kept = [index for index, req in enumerate(self._batch) if req in batch.sampled]
        for _ in range(2 if len(kept) < len(self._batch) else 1):  # the batch filters, and so does its owner
            self._grammars = [self._grammars[index] for index in kept if index < len(self._grammars)]
        self._grammars += [req.grammar for req in batch.sampled if req not in self._batch]
        self._batch = list(batch.sampled)
        masked = []
        for row, grammar in enumerate(self._grammars[:len(logits)]):
            if isinstance(grammar, RequestState) and not grammar.terminated:
                logits[row].masked_fill_(~torch.from_numpy(grammar.fsm.allowed(grammar.state)), -torch.inf)
                masked.append(row)
        return masked


def each_row_is_masked_by_its_own_request(build: PolicyBuild, bench: Bench) -> None:
    """Three requests, the first leaves: the two that stay are masked as they were."""
    policy, width = build(bench.context()), bench.tokenizer.vocabulary.width
    reqs = [request(Constraint.regex(pattern), rid=pattern) for pattern in ("[0-9]", "[a-m]", "[n-z]")]
    ready(policy, *reqs)
    before = masks(policy, width, *reqs)
    policy.release(reqs[0], "stop")
    after = masks(policy, width, *reqs[1:])
    hold(torch.equal(after, before[1:]), "after a request left, a row is not masked by its own grammar")


def scenario(bench: Bench) -> None:
    """A short answer between longer ones."""
    asks = [Ask("x", Constraint.regex(pattern)) for pattern in ("[0-9]", "[a-m]{4}", "[n-z]{4}")]
    for result in bench.run(bench.engine(1), asks):
        hold(result.error is None, f"a request got a token that its grammar refuses: {result.error}")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    28, SecondListOfGrammars, policies(), each_row_is_masked_by_its_own_request, "not masked by its own grammar",
    into_stage(stage1_copied_fsm, SecondListOfGrammars, scenario, "its grammar refuses"))
