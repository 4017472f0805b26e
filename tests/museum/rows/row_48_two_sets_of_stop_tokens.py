"""Row 48: the grammar ends with the tokenizer's one stop token, the server with those of the model's config."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shared_runtime.constraint import Constraint
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from stages import stage1_copied_fsm
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit
from tests.museum.policies import PolicyBuild, feed, into_stage, masks, policies, ready


class TokenizersStopToken(CopiedFSMPolicy):
    """Specimen of a stage's policy: at the end of the text only the tokenizer's own stop token is allowed."""

    def constrain(self, logits: Tensor, batch: ScheduleBatch, positions: Sequence[int]) -> list[int]:
        """Mask, and keep one stop token of several."""
        masked = super().constrain(logits, batch, positions)
        others = sorted(self._context.vocabulary.stop_ids)[1:]
        for row in masked:
            logits[row, others] = -torch.inf
        return masked


def the_grammar_ends_with_the_servers_stop_tokens(build: PolicyBuild, bench: Bench) -> None:
    """`yes|no` on a model with the stop tokens 0 and 1: none before the end, both at it."""
    policy, vocabulary = build(bench.context()), bench.tokenizer.vocabulary
    assert vocabulary.stop_ids == {0, 1}
    req = request(Constraint.regex("(yes|no)"))
    ready(policy, req)
    for token_id in bench.tokenizer.encode("yes"):
        hold(not masks(policy, vocabulary.width, req)[0, :2].any(), "a stop token is allowed before the end")
        feed(policy, req, token_id)
    allowed = set(masks(policy, vocabulary.width, req)[0].nonzero().flatten().tolist())
    hold(allowed == {0, 1}, f"at the end of the text {sorted(allowed)} is allowed, the server stops at [0, 1]")


def scenario(bench: Bench) -> None:
    """A model that ends its answers with the other stop token, and prefers a letter to the first one."""
    engine = bench.engine(1)
    letter = engine.tokenizer.encode("a")[0]
    params = SamplingParams(max_new_tokens=8, logit_bias={1: 200.0, letter: 100.0, 0: -100.0})
    result = bench.run(engine, [Ask("x", Constraint.regex("a{1,40}"), params)])[0]
    hold(result.finish_reason == "stop", "the answer does not stop: its stop token is masked")


EXHIBIT: Exhibit[PolicyBuild] = Exhibit(
    48, TokenizersStopToken, policies(), the_grammar_ends_with_the_servers_stop_tokens, r"\[0\] is allowed",
    into_stage(stage1_copied_fsm, TokenizersStopToken, scenario, "does not stop: its stop token is masked"))
