"""Row 47: NaN logits give an id just behind the vocabulary, and the check asks for `>` instead of `>=`."""

from __future__ import annotations

from unittest.mock import patch

import torch
from torch import Tensor

from shared_runtime import token_chooser
from shared_runtime.constraint import Constraint
from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.model_runner import ModelRunner
from shared_runtime.sampler import SampleOutput, Sampler
from shared_runtime.sampling_info import SamplingInfo
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, request, unbroken, vocabulary_of
from tests.museum.exhibit import Exhibit, Injection


class OffByOneSampler(Sampler):
    """Specimen of `Sampler`: the lowest id among the largest logits, or the width where NaN is none of them."""

    def sample(self, logits: Tensor, info: SamplingInfo) -> SampleOutput:
        """Greedy, with a check that lets the first id outside through."""
        width = logits.shape[1]
        found = torch.where(logits == logits.amax(-1, keepdim=True), torch.arange(width), width).amin(-1)
        output = SampleOutput(found.tolist())
        for row, token_id in enumerate(output.token_ids):
            if token_id > width:
                output.errors[row] = "token id outside the vocabulary"
        return output


def a_row_of_nan_ends_its_request(sampler_class: type[Sampler], bench: Bench) -> None:
    """Two rows, the first all NaN: no id outside the vocabulary comes out of it without an error."""
    vocabulary = vocabulary_of(b"a", b"b")
    sampler = sampler_class(vocabulary)
    logits = torch.tensor([[torch.nan] * 3, [0.0, 1.0, 0.0]])
    info = SamplingInfo.from_requests([request(rid="nan"), request(rid="good")], vocabulary, torch.device("cpu"))
    sampler.adjust(logits, info)
    output = sampler.sample(logits, info)
    for row, token_id in enumerate(output.token_ids):
        hold(row in output.errors or 0 <= token_id < 3, f"row {row} got token id {token_id} of a vocabulary of 3")
    hold(set(output.errors) == {0} and output.token_ids[1] == 1, "NaN in one row is not the error of that row alone")


def scenario(bench: Bench) -> None:
    """The model answers NaN to the first of two requests."""
    real = ModelRunner.forward

    def forward(self: ModelRunner, batch: ForwardBatch) -> Tensor:
        logits = real(self, batch)
        if self.forward_passes == 1:
            logits[0] = torch.nan
        return logits

    with patch.object(ModelRunner, "forward", forward), unbroken("an id outside the vocabulary killed the loop"):
        bad, good = bench.run(bench.engine(1), [Ask("y"), Ask("x", Constraint.regex("[0-9]{4}"))])
    hold(bad.error is not None, "NaN was not an error")
    hold(good.error is None and len(good.text) == 4, "the neighbour did not go on")


EXHIBIT: Exhibit[type[Sampler]] = Exhibit(
    47, OffByOneSampler, {"runtime": Sampler}, a_row_of_nan_ends_its_request, "row 0 got token id 3 of a vocabulary",
    Injection(token_chooser, "Sampler", OffByOneSampler, scenario, "outside the vocabulary killed the loop"))
