"""Company never changes a row: sampling alone and in a batch of 16 different requests is bit-identical."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from shared_runtime.request import Request
from shared_runtime.sampler import SampleOutput, Sampler, process
from shared_runtime.sampling_info import SamplingInfo
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.vocabulary import Vocabulary
from tests.unit.sampling_cases import CPU, mask_row, request, small_vocabulary

SETTINGS = [
    SamplingParams(),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.7, top_k=5),
    SamplingParams(temperature=1.2, top_k=40, top_p=0.9),
    SamplingParams(temperature=2.0, top_p=0.99),
    SamplingParams(temperature=1.0, min_p=0.05),
    SamplingParams(temperature=0.9, top_k=30, top_p=0.95, min_p=0.01, repetition_penalty=1.2),
    SamplingParams(repetition_penalty=1.5, frequency_penalty=0.5),
    SamplingParams(temperature=1.0, presence_penalty=1.5, logit_bias={4: 3.0, 6: -2.0}),
    SamplingParams(min_new_tokens=50, stop_token_ids=(5,)),
    SamplingParams(temperature=1.5, min_new_tokens=50),
    SamplingParams(temperature=1.0, stop_token_ids=(5, 6)),
    SamplingParams(temperature=1.0, ignore_eos=True),
    SamplingParams(stop_token_ids=(7,), logit_bias={7: 5.0}),
    SamplingParams(temperature=5e-324, top_k=1),
    SamplingParams(temperature=100.0, top_p=0.5, min_p=1.0),
]


def sixteen_requests(vocabulary: Vocabulary) -> list[Request]:
    generator = torch.Generator().manual_seed(5)
    reqs = []
    for row, params in enumerate(SETTINGS):
        ids = torch.randint(3, len(vocabulary), (row + 2,), generator=generator).tolist()
        reqs.append(request(params, seed=1000 + row // 2, prompt=ids[:2], output=ids[2:], constrained=row % 3 == 0))
    return reqs


def passed(logits: Tensor, reqs: Sequence[Request], vocabulary: Vocabulary,
           allowed: Sequence[Tensor]) -> tuple[Tensor, Tensor | None, SampleOutput]:
    """Final logits, processed scores of the rows that draw, and what was chosen."""
    logits = logits.clone()
    sampler, info = Sampler(vocabulary), SamplingInfo.from_requests(reqs, vocabulary, CPU)
    sampler.adjust(logits, info)
    for row, req in enumerate(reqs):
        if req.has_grammar:
            mask_row(logits, row, allowed[row])
    output = sampler.sample(logits, info)
    if info.random is None:
        return logits, None, output
    drawn = logits[info.random.index]
    return logits, process(drawn, drawn.amax(-1, keepdim=True), info.random), output


@pytest.fixture
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize(("width", "threads"), [
    (61, 1), (61, 2), (1003, 1), (1003, 2), (49280, 1), pytest.param(49280, 2, marks=pytest.mark.slow),
], indirect=["threads"])
@pytest.mark.parametrize("broken_row", [None, 8], ids=["all sound", "one broken"])
def test_a_row_alone_is_bit_identical_to_the_row_among_sixteen(
        width: int, broken_row: int | None, threads: int) -> None:
    vocabulary = small_vocabulary(width - 1, width=width)
    reqs = sixteen_requests(vocabulary)
    logits = torch.randn(16, width, generator=torch.Generator().manual_seed(width)) * 3
    if broken_row is not None:
        logits[broken_row, 9] = math.nan
    allowed = [torch.tensor([2, *range(3, width - 1, 2 + row % 2)]) for row in range(16)]
    together, scores, output = passed(logits, reqs, vocabulary, allowed)
    drawing = [row for row, req in enumerate(reqs) if not req.sampling.greedy]
    assert scores is not None
    for row, req in enumerate(reqs):
        alone, own_scores, own = passed(logits[row:row + 1], [req], vocabulary, allowed[row:row + 1])
        assert torch.equal(alone[0].nan_to_num(), together[row].nan_to_num())
        assert own.token_ids == [output.token_ids[row]]
        assert own.errors.get(0) == output.errors.get(row)
        assert own.warnings.get(0) == output.warnings.get(row)
        if own_scores is not None:
            assert torch.equal(own_scores[0], scores[drawing.index(row)])


def test_a_seed_draws_the_same_tokens_when_a_request_is_put_back_and_taken_up_again() -> None:
    vocabulary = small_vocabulary(64)
    logits = torch.randn(6, 64, generator=torch.Generator().manual_seed(1))
    params = SamplingParams(temperature=1.0)

    def answer(retracted_after: int) -> list[int]:
        req = request(params, seed=9)
        for step in range(6):
            if step == retracted_after:
                req = request(params, seed=9, output=req.output_ids)
            req.output_ids += passed(logits[step:step + 1], [req], vocabulary, [])[2].token_ids
        return req.output_ids

    assert answer(retracted_after=3) == answer(retracted_after=99)
    assert len(set(answer(retracted_after=99))) > 1
