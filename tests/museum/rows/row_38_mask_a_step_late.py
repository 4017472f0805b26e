"""Row 38: while a pass runs, the mask of the next one is filled, from a grammar that does not know this one's token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from shared_runtime import policy as contract
from shared_runtime.constraint import Constraint
from shared_runtime.schedule_batch import ScheduleBatch
from stages import stage4_backends
from stages.stage4_backends.decoder import BackendsPolicy
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit
from tests.museum.policies import PolicyBuild, feed, into_stage, masks, policies, ready


class MasksAtLaunch(BackendsPolicy):
    """Specimen of a stage's policy: with each pass the mask of the one behind it is made, before its token is there."""

    def __init__(self, context: contract.StageContext) -> None:
        super().__init__(context)
        self._made_early: dict[str, Tensor] = {}

    def fill_mask(self, batch: ScheduleBatch, positions: Sequence[int]) -> contract.FilledMask:
        """Use what was made with the pass before; the first pass has nothing else than its own."""
        now = super().fill_mask(batch, positions)
        shown = torch.zeros((len(batch.sampled), self._vocabulary.width))
        now.apply(shown)
        used = {}
        for row in now.rows:
            rid, forbidden = batch.sampled[row].rid, shown[row].isinf()
            used[row] = self._made_early.get(rid, forbidden)
            self._made_early[rid] = forbidden
        return contract.FilledMask(now.rows, lambda logits: _forbid(logits, used))


def _forbid(logits: Tensor, rows: Mapping[int, Tensor]) -> None:
    for row, forbidden in rows.items():
        logits[row].masked_fill_(forbidden, -torch.inf)


def a_mask_knows_every_token_before_it(build: PolicyBuild, bench: Bench) -> None:
    """A digit, a letter, a digit: after the first digit only letters may come."""
    policy, width = build(bench.context()), bench.tokenizer.vocabulary.width
    req = request(Constraint.regex("[0-9][x-z][0-9]"))
    ready(policy, req)
    digit, letter = bench.tokenizer.encode("7y")
    for token_id, other in ((digit, letter), (letter, digit), (digit, letter)):
        mask = masks(policy, width, req)[0]
        hold(bool(mask[token_id]) and not mask[other], "the mask is that of the step before")
        feed(policy, req, token_id)


def scenario(bench: Bench) -> None:
    """The same pattern on whole engines, the second with overlap."""
    for overlap in (False, True):
        result = bench.run(bench.engine(4, overlap=overlap), [Ask("x", Constraint.regex("[0-9][x-z][0-9]"))])[0]
        hold(result.error is None, f"a token was sampled under the mask of the step before: {result.error}")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    38, MasksAtLaunch, policies(), a_mask_knows_every_token_before_it, "that of the step before",
    into_stage(stage4_backends, MasksAtLaunch, scenario, "under the mask of the step before"))
