"""Row 46: a token that the grammar refuses is an exception, and it leaves the loop."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

from shared_runtime import policy as contract
from shared_runtime.constraint import Constraint
from shared_runtime.schedule_batch import ScheduleBatch
from stages import stage1_copied_fsm
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request, sampled, unbroken
from tests.museum.exhibit import Exhibit
from tests.museum.policies import PolicyBuild, into_stage, policies, ready


class RaisesOnRefusal(CopiedFSMPolicy):
    """Specimen of a stage's policy: the first refusal ends the pass of the whole batch."""

    def accept(self, batch: ScheduleBatch, rows: Sequence[contract.SampledRow]) -> list[contract.AcceptResult]:
        """Advance each FSM."""
        results = super().accept(batch, rows)
        for result in results:
            if result.error is not None:
                raise ValueError(f"Tokens not accepted: {result.error}")
        return results


def a_refused_token_ends_its_request_alone(build: PolicyBuild, bench: Bench) -> None:
    """Two requests for digits; the first gets a letter."""
    policy = build(bench.context())
    reqs = [request(Constraint.regex("[0-9]+"), rid=rid) for rid in ("bad", "good")]
    ready(policy, *reqs)
    letter, digit = bench.tokenizer.encode("a7")
    rows = [contract.SampledRow(reqs[0], (letter,)), contract.SampledRow(reqs[1], (digit,))]
    with unbroken("one refused token ended the whole batch"):
        bad, good = policy.accept(sampled(*reqs), rows)
    hold(bad.error is not None and good.error is None, "the refused token is not the error of its request alone")


def scenario(bench: Bench) -> None:
    """A stage that forgets to mask: the constrained request fails, its neighbour does not notice."""
    engine = bench.engine(1)
    with patch.object(engine.parts.policy, "constrain", lambda logits, batch, positions: []), \
            unbroken("one refused token killed the loop"):
        bad, good = bench.run(engine, [Ask("x", Constraint.regex("[0-9]{4}")), Ask("y")])
    hold(bad.error is not None and good.error is None, "the refused token is not the error of its request alone")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    46, RaisesOnRefusal, policies(), a_refused_token_ends_its_request_alone, "one refused token ended the whole batch",
    into_stage(stage1_copied_fsm, RaisesOnRefusal, scenario, "one refused token killed the loop"))
