"""What is drawn, against naive probabilities: chi-square on 20,000 draws, alpha 1e-4, fixed seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shared_runtime.request import Request
from shared_runtime.sampler import Sampler
from shared_runtime.sampling_info import SamplingInfo
from shared_runtime.sampling_params import SamplingParams
from tests.unit.sampling_cases import (
    ALPHA,
    CPU,
    DRAWS,
    chi_square_p,
    naive_adjust,
    naive_probabilities,
    request,
    small_vocabulary,
)

SIZE = 48
VOCABULARY = small_vocabulary(SIZE)
SETTINGS = {
    "temperature 1": SamplingParams(temperature=1.0),
    "temperature 0.5": SamplingParams(temperature=0.5),
    "temperature 3": SamplingParams(temperature=3.0),
    "top_k": SamplingParams(temperature=1.0, top_k=7),
    "top_p": SamplingParams(temperature=1.0, top_p=0.8),
    "min_p": SamplingParams(temperature=1.0, min_p=0.1),
    "top_k, top_p": SamplingParams(temperature=1.3, top_k=12, top_p=0.7),
    "top_k, top_p, min_p": SamplingParams(temperature=2.0, top_k=20, top_p=0.9, min_p=0.15),
    "logit bias": SamplingParams(temperature=1.0, logit_bias={5: 4.5, 10: -1.0, 44: -100.0}),
    "repetition": SamplingParams(temperature=1.0, repetition_penalty=1.8),
    "frequency": SamplingParams(temperature=1.0, frequency_penalty=0.7),
    "presence": SamplingParams(temperature=1.0, presence_penalty=-1.5),
    "all": SamplingParams(temperature=0.9, top_k=30, top_p=0.95, min_p=0.02, repetition_penalty=1.2,
                          frequency_penalty=0.3, presence_penalty=0.4, logit_bias={6: 1.5}),
}


def some_logits() -> torch.Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(11)) * 1.5


def draw(logits: torch.Tensor, req: Request, *, along: str) -> list[int]:
    """Counts of `DRAWS` tokens, over as many seeds at one position or positions of one seed."""
    info = SamplingInfo.from_requests([req] * DRAWS, VOCABULARY, CPU)
    if along == "seeds":
        info = replace(info, seeds=list(range(DRAWS)))
    else:
        info = replace(info, positions=list(range(DRAWS)))
    rows, sampler = logits.repeat(DRAWS, 1), Sampler(VOCABULARY)
    sampler.adjust(rows, info)
    return torch.bincount(torch.tensor(sampler.sample(rows, info).token_ids), minlength=SIZE).tolist()


@pytest.mark.parametrize(("name", "along"), [*((name, "seeds") for name in SETTINGS),
                                             ("temperature 1", "positions"), ("all", "positions")])
def test_draws_follow_the_processed_distribution(name: str, along: str) -> None:
    logits = some_logits()
    req = request(SETTINGS[name], seed=7, prompt=[3, 8, 20], output=[5, 5, 5, 9, 20])
    expected = naive_probabilities(naive_adjust(logits.tolist(), req, SIZE), req.sampling)
    assert chi_square_p(draw(logits, req, along=along), expected) > ALPHA


@pytest.mark.parametrize("params", [
    SamplingParams(temperature=1.1), SamplingParams(temperature=1.0, top_k=15),
    SamplingParams(temperature=1.0, top_p=0.95), SamplingParams(temperature=1.0, logit_bias={10: 0.2}),
], ids=["temperature", "top_k", "top_p", "bias"])
def test_the_chi_square_test_would_see_a_setting_that_is_slightly_wrong(params: SamplingParams) -> None:
    logits = some_logits()
    expected = naive_probabilities(logits.tolist(), SamplingParams(temperature=1.0))
    assert chi_square_p(draw(logits, request(params), along="seeds"), expected) < ALPHA
