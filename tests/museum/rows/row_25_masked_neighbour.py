"""Row 25: rows of the mask begin as "nothing is allowed", and rows without a grammar stay so."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shared_runtime.constraint import Constraint
from shared_runtime.schedule_batch import ScheduleBatch
from stages import stage1_copied_fsm
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy, RequestState
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request, sampled
from tests.museum.exhibit import Exhibit
from tests.museum.policies import PolicyBuild, into_stage, policies, ready


class ZeroInitialisedMask(CopiedFSMPolicy):
    """Specimen of a stage's policy: one mask for the batch, 1 = allowed, made of zeros."""

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """Fill the constrained rows and apply the whole mask."""
        mask = torch.zeros(logits.shape, dtype=torch.bool)
        masked = []
        for row, req in enumerate(batch.sampled):
            if isinstance(req.grammar, RequestState):
                mask[row] = torch.from_numpy(req.grammar.fsm.allowed(req.grammar.state))
                masked.append(row)
        logits.masked_fill_(~mask, -torch.inf)
        return masked


def rows_without_a_grammar_are_untouched(build: PolicyBuild, bench: Bench) -> None:
    """Batch [regex, none]: the second row's logits are bit-identical afterwards, NaN included."""
    policy = build(bench.context())
    bound, free = request(Constraint.regex("[0-9]+")), request(rid="free")
    ready(policy, bound)
    logits = torch.randn((2, bench.tokenizer.vocabulary.width))
    logits[1, 7] = torch.nan
    before = logits.clone()
    policy.constrain(logits, sampled(bound, free), [0, 0])
    hold(torch.equal(logits[1].view(torch.int32), before[1].view(torch.int32)),
         "the row without a grammar was masked")
    hold(bool((logits[0] == -torch.inf).any()), "the row with a grammar was not masked")


def scenario(bench: Bench) -> None:
    """A free request beside a constrained one."""
    free = bench.run(bench.engine(1), [Ask("x", Constraint.regex("[0-9]{4}")), Ask("y")])[1]
    hold(free.error is None, f"the unconstrained neighbour failed: {free.error}")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    25, ZeroInitialisedMask, policies(), rows_without_a_grammar_are_untouched, "the row without a grammar was masked",
    into_stage(stage1_copied_fsm, ZeroInitialisedMask, scenario, "the unconstrained neighbour failed"))
