"""Row 65: a request that was put back into the queue gives its grammar the newest token again when it resumes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from shared_runtime import policy as contract
from shared_runtime.constraint import Constraint
from shared_runtime.errors import JumpforwardError
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from stages import stage5_backend_jump
from stages.stage5_backend_jump.decoder import GrammarManagerPolicy
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request, sampled
from tests.museum.exhibit import Exhibit
from tests.museum.policies import PolicyBuild, feed, into_stage, masks, policies, ready


class AcceptsAgain(GrammarManagerPolicy):
    """Specimen of a stage's policy: on resuming, the newest token is taken for one that the grammar has not seen."""

    def __init__(self, context: contract.StageContext) -> None:
        super().__init__(context)
        self._resuming: set[str] = set()
        self._errors: dict[str, JumpforwardError] = {}

    def retract(self, req: Request) -> None:
        """It will come back."""
        self._resuming.add(req.rid)

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """First the token that came with the request, as for one whose prompt was computed elsewhere."""
        for req in batch.sampled:
            if req.rid in self._resuming and req.output_ids:
                self._resuming.remove(req.rid)
                result = super().accept(batch, [contract.SampledRow(req, (req.output_ids[-1],))])[0]
                if result.error is not None:
                    self._errors[req.rid] = result.error
        return super().constrain(logits, batch, positions)

    def accept(self, batch: ScheduleBatch, rows: Sequence[contract.SampledRow]) -> list[contract.AcceptResult]:
        """A request whose token was refused ends."""
        return [contract.AcceptResult(0, error=self._errors.pop(row.req.rid)) if row.req.rid in self._errors
                else super(AcceptsAgain, self).accept(batch, [row])[0] for row in rows]


def a_token_is_accepted_once(build: PolicyBuild, bench: Bench) -> None:
    """A digit, a retraction, and the letter that must follow the digit."""
    policy = build(bench.context())
    req = request(Constraint.regex("([0-9][x-z]){3}"))
    ready(policy, req)
    digit, letter = bench.tokenizer.encode("7y")
    feed(policy, req, digit)
    policy.retract(req)
    mask = masks(policy, bench.tokenizer.vocabulary.width, req)[0]
    hold(bool(mask[letter]) and not mask[digit], "after a retraction the grammar is elsewhere")
    result, = policy.accept(sampled(req), [contract.SampledRow(req, (letter,))])
    hold(result.error is None, f"a retracted request is aborted when it resumes: {result.error}")


def scenario(bench: Bench) -> None:
    """Four requests in a pool for two."""
    engine = bench.engine(5, kv_pool_tokens=40, new_token_ratio=0.1)
    asks = [Ask(prompt, Constraint.regex("([0-9][x-z]){12}"), SamplingParams(max_new_tokens=24)) for prompt in "abcd"]
    results = bench.run(engine, asks)
    hold(any(result.metrics.retractions for result in results), "nothing was retracted")
    for result in results:
        hold(result.error is None, f"a retracted request is aborted when it resumes: {result.error}")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    65, AcceptsAgain, policies(), a_token_is_accepted_once, "aborted when it resumes",
    into_stage(stage5_backend_jump, AcceptsAgain, scenario, "aborted when it resumes"))
