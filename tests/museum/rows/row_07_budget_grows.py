"""Row 7: a jump empties the list that the limit counts, and lowers the limit by the jumped tokens alone."""

from __future__ import annotations

from dataclasses import replace

from shared_runtime import policy as contract
from shared_runtime.engine import Engine
from shared_runtime.schedule_batch import ScheduleBatch
from stages import stage2_jump_forward
from stages.stage2_jump_forward.decoder import JumpForwardPolicy
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit
from tests.museum.jumps import ask
from tests.museum.policies import PolicyBuild, into_stage, policies


class ForgetsWhatWasSampled(JumpForwardPolicy):
    """Specimen of a stage's policy: tokens from before a jump no longer count against the limit."""

    def before_decode(self, batch: ScheduleBatch) -> contract.Requeue:
        """Jump; the limit on all output grows by what was there."""
        requeue = super().before_decode(batch)
        for req in requeue.reqs:
            more = len(requeue.notes[req.rid].old_ids)
            req.sampling = replace(req.sampling, max_new_tokens=req.sampling.max_new_tokens + more)
        return requeue


def _limit(bench: Bench, engine: Engine) -> None:
    result = bench.run(engine, [ask("([a-z]{2}--){9}", max_new_tokens=10)])[0]
    hold(len(result.token_ids) <= 10, f"max_new_tokens is 10, and {len(result.token_ids)} tokens came")
    hold(result.finish_reason == "length", "the limit was not the reason to end")


def the_limit_counts_every_token(build: PolicyBuild, bench: Bench) -> None:
    """A pattern that forces two characters after every two, cut at ten tokens."""
    _limit(bench, bench.engine_with(build))


def scenario(bench: Bench) -> None:
    """The same in stage 2."""
    _limit(bench, bench.engine(2))


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    7, ForgetsWhatWasSampled, policies(), the_limit_counts_every_token, "max_new_tokens is 10, and",
    into_stage(stage2_jump_forward, ForgetsWhatWasSampled, scenario, "max_new_tokens is 10, and"))
