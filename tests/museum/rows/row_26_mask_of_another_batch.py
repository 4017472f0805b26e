"""Row 26: the mask is built when the batch is put together, and the batch is another one when it runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shared_runtime import policy as contract
from shared_runtime.constraint import Constraint
from shared_runtime.schedule_batch import ScheduleBatch
from stages import stage1_copied_fsm
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy, RequestState
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request, unbroken
from tests.museum.exhibit import Exhibit
from tests.museum.policies import PolicyBuild, feed, into_stage, masks, policies, ready


class MaskFromBatchBuilding(CopiedFSMPolicy):
    """Specimen of a stage's policy: masks are filled in `before_decode`, for the rows that are there then."""

    def __init__(self, context: contract.StageContext) -> None:
        super().__init__(context)
        self._early: Tensor | None = None

    def before_decode(self, batch: ScheduleBatch) -> contract.Requeue:
        """Build the mask with the rest of the batch's tensors."""
        self._early = torch.stack([
            torch.from_numpy(req.grammar.fsm.allowed(req.grammar.state)) if isinstance(req.grammar, RequestState)
            else torch.ones(self._context.vocabulary.width, dtype=torch.bool) for req in batch.reqs])
        return super().before_decode(batch)

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """Apply what was built, to as many rows as there were."""
        early, self._early = self._early, None
        if early is None:
            return super().constrain(logits, batch, positions)
        rows = min(len(early), len(logits))
        logits[:rows].masked_fill_(~early[:rows], -torch.inf)
        return list(range(rows))


def the_mask_is_of_the_batch_that_runs(build: PolicyBuild, bench: Bench) -> None:
    """A batch of two is put together, three join, and one of the two has had a token meanwhile."""
    policy, width = build(bench.context()), bench.tokenizer.vocabulary.width
    reqs = [request(Constraint.regex("[0-9][a-z]"), rid=f"r{index}") for index in range(5)]
    ready(policy, *reqs)
    policy.before_decode(ScheduleBatch.about_to_decode(reqs[:2]))
    feed(policy, reqs[0], bench.tokenizer.encode("7")[0])
    found = masks(policy, width, *reqs)
    bound = [row for row in range(5) if not found[row].all()]
    hold(len(bound) == 5, f"{len(bound)} rows of 5 are masked")
    hold(not torch.equal(found[0], found[1]), "a row is masked from an old state")


def scenario(bench: Bench) -> None:
    """One request decodes when another arrives: the pass that follows is the newcomer's alone."""
    engine = bench.engine(1)
    with unbroken("a request got a token that its grammar refuses"):
        first, = engine.add_request("x", constraint=Constraint.regex("[0-9]{6}"))
        for _ in range(3):
            engine.step()
        second = bench.run(engine, [Ask("y", Constraint.regex("[a-z]{3}"))])[0]
        assert first != second.rid
        if second.error is not None:
            raise second.error


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    26, MaskFromBatchBuilding, policies(), the_mask_is_of_the_batch_that_runs, "2 rows of 5 are masked",
    into_stage(stage1_copied_fsm, MaskFromBatchBuilding, scenario, "its grammar refuses"))
