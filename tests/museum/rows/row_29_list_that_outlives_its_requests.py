"""Row 29: the list of grammars is filled while a batch has any, and never cleared."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shared_runtime import policy as contract
from shared_runtime.constraint import Constraint
from shared_runtime.schedule_batch import ScheduleBatch
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy, RequestState
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit
from tests.museum.policies import PolicyBuild, masks, policies, ready


class GrammarsNeverCleared(CopiedFSMPolicy):
    """Specimen of a stage's policy: the list is replaced only by a batch with a constrained request."""

    def __init__(self, context: contract.StageContext) -> None:
        super().__init__(context)
        self._grammars: list[object] = []

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """Mask the rows that the list has a grammar for."""
        if batch.has_grammar:
            self._grammars = [req.grammar for req in batch.sampled]
        masked = []
        for row, grammar in enumerate(self._grammars[:len(logits)]):
            if isinstance(grammar, RequestState):
                logits[row].masked_fill_(~torch.from_numpy(grammar.fsm.allowed(grammar.state)), -torch.inf)
                masked.append(row)
        return masked


def nothing_is_masked_without_a_constrained_request(build: PolicyBuild, bench: Bench) -> None:
    """Two with a regex and two without; the first two end."""
    policy, width = build(bench.context()), bench.tokenizer.vocabulary.width
    bound = [request(Constraint.regex("[0-9]"), rid=f"bound-{index}") for index in range(2)]
    free = [request(rid=f"free-{index}") for index in range(2)]
    ready(policy, *bound)
    masks(policy, width, *bound, *free)
    for req in bound:
        policy.release(req, "stop")
    hold(bool(masks(policy, width, *free).all()), "unconstrained rows are masked by a finished one's grammar")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    29, GrammarsNeverCleared, policies(), nothing_is_masked_without_a_constrained_request,
    "by a finished one's grammar")
