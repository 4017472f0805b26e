"""Row 6: a retracted request starts its grammar again, behind the text of its earlier jumps."""

from __future__ import annotations

import re

import torch

from shared_runtime.constraint import Constraint
from shared_runtime.request import Request
from shared_runtime.schedule_batch import ScheduleBatch
from stages import stage2_jump_forward
from stages.stage2_jump_forward.decoder import JumpForwardPolicy, RequestState
from tests.museum.bench import Bench, hold, request, unbroken
from tests.museum.exhibit import Exhibit
from tests.museum.jumps import ask, preferring
from tests.museum.policies import PolicyBuild, feed, into_stage, masks, policies, ready


class RestartsOnRetraction(JumpForwardPolicy):
    """Specimen of a stage's policy: what came since the last jump is dropped, and the state is 0 again."""

    def retract(self, req: Request) -> None:
        """Sampled tokens are forgotten; those of jumps are part of the prompt by now and stay."""
        kept = max((index + 1 for index, origin in enumerate(req.origins) if origin == "jumped"), default=0)
        del req.output_ids[kept:], req.origins[kept:]
        if isinstance(req.grammar, RequestState):
            req.grammar.state, req.grammar.accepted = 0, kept


PATTERN = "[a-z]{3}-middle-[a-z]{12}"


def a_retracted_request_goes_on_where_it_was(build: PolicyBuild, bench: Bench) -> None:
    """Three letters, the text in the middle (jumped, where the stage jumps), one letter; then memory runs out."""
    policy, encode = build(bench.context()), bench.tokenizer.encode
    req, again = (request(Constraint.regex(PATTERN), rid=rid) for rid in ("retracted", "fresh"))
    ready(policy, req, again)
    feed(policy, req, *encode("xyz"))
    req.detokenizer = None
    policy.before_decode(ScheduleBatch.about_to_decode([req]))
    if len(req.output_ids) == 3:
        feed(policy, req, *encode("-middle-"))
    feed(policy, req, *encode("q"))
    policy.retract(req)
    feed(policy, again, *req.output_ids)
    width = bench.tokenizer.vocabulary.width
    hold(torch.equal(masks(policy, width, req), masks(policy, width, again)),
         "after the retraction the grammar is not where the text is")


def scenario(bench: Bench) -> None:
    """Three requests in a pool that is too small for them together."""
    engine = bench.engine(2, kv_pool_tokens=40, new_token_ratio=0.05)
    wanted = ask(PATTERN, max_new_tokens=30, logit_bias=preferring(engine, "qrs"))
    with unbroken("the answer starts again in its middle"):
        results = bench.run(engine, [wanted] * 3)
    assert sum(result.metrics.retractions for result in results) > 0
    for result in results:
        hold(re.fullmatch(PATTERN, result.text) is not None, f"the answer starts again in its middle: {result.text!r}")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    6, RestartsOnRetraction, policies(), a_retracted_request_goes_on_where_it_was, "not where the text is",
    into_stage(stage2_jump_forward, RestartsOnRetraction, scenario, "starts again in its middle"))
