"""Processed probabilities against `transformers`' warpers, and against a naive rule that states how ties go."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from shared_runtime.sampler import Sampler, process
from shared_runtime.sampling_info import SamplingInfo
from shared_runtime.sampling_params import SamplingParams
from tests.unit.sampling_cases import CPU, naive_probabilities, request, small_vocabulary

TOLERANCE = 1e-6
SETTINGS = [
    SamplingParams(temperature=0.6),
    SamplingParams(temperature=1.7),
    SamplingParams(temperature=1.0, top_k=1),
    SamplingParams(temperature=1.0, top_k=10),
    SamplingParams(temperature=1.0, top_k=10_000),
    SamplingParams(temperature=1.0, top_p=0.9),
    SamplingParams(temperature=1.0, top_p=0.3),
    SamplingParams(temperature=1.0, top_p=1e-6),
    SamplingParams(temperature=1.0, min_p=0.05),
    SamplingParams(temperature=1.0, min_p=1.0),
    SamplingParams(temperature=0.8, top_k=20, top_p=0.9),
    SamplingParams(temperature=1.5, top_k=40, min_p=0.1),
    SamplingParams(temperature=1.2, top_p=0.7, min_p=0.02),
    SamplingParams(temperature=2.0, top_k=50, top_p=0.95, min_p=0.05),
]


def random_logits(width: int, seed: int, *, ties: bool) -> Tensor:
    """[1, width] float32; with `ties` rounded to halves, so that most values occur many times."""
    logits = torch.randn(1, width, generator=torch.Generator().manual_seed(seed)) * 2.5
    return (logits * 2).round() / 2 if ties else logits


def theirs(logits: Tensor, params: SamplingParams) -> Tensor:
    """[width] float64 probabilities; in float64, so that their own rounding moves no border."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(params.temperature)])
    if params.top_k:
        warpers.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        warpers.append(TopPLogitsWarper(params.top_p))
    if params.min_p > 0.0:
        warpers.append(MinPLogitsWarper(params.min_p))
    scores: Tensor = warpers(cast(torch.LongTensor, torch.zeros(1, 1, dtype=torch.int64)), logits.double())
    return scores.softmax(-1)[0]


def ours(logits: Tensor, params: SamplingParams) -> Tensor:
    """[width] float64 probabilities."""
    info = SamplingInfo.from_requests([request(params)], small_vocabulary(logits.shape[1]), CPU)
    assert info.random is not None
    return process(logits, logits.amax(-1, keepdim=True), info.random).softmax(-1)[0]


@pytest.mark.parametrize("params", SETTINGS, ids=str)
@pytest.mark.parametrize("width", [40, 3000])
def test_processed_probabilities_equal_transformers_warpers(params: SamplingParams, width: int) -> None:
    for seed in range(8):
        logits = random_logits(width, seed, ties=False)
        assert (ours(logits, params) - theirs(logits, params)).abs().max() <= TOLERANCE


@pytest.mark.parametrize("params", SETTINGS, ids=str)
@pytest.mark.parametrize("width", [40, 3000])
def test_with_ties_the_probabilities_are_theirs_up_to_which_of_equal_tokens_top_p_keeps(
        params: SamplingParams, width: int) -> None:
    for seed in range(8):
        logits = random_logits(width, seed, ties=True)
        mine, other = ours(logits, params), theirs(logits, params)
        # Their top-p sorts without an order among equals; how many it keeps, and with what weight, is the rule.
        assert (mine.sort().values - other.sort().values).abs().max() <= TOLERANCE
        differing = logits[0, (mine - other).abs() > TOLERANCE]
        if params.top_p == 1.0:
            assert len(differing) == 0
        assert len(set(differing.tolist())) <= 1


@pytest.mark.parametrize("params", SETTINGS, ids=str)
@pytest.mark.parametrize("ties", [False, True])
def test_processed_probabilities_equal_the_naive_rule_in_which_lower_ids_go_first(
        params: SamplingParams, ties: bool) -> None:
    for seed in range(8):
        logits = random_logits(60, seed, ties=ties)
        expected = naive_probabilities(logits[0].tolist(), params)
        assert ours(logits, params).tolist() == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_processed_probabilities_equal_transformers_over_the_real_width(params: SamplingParams) -> None:
    for seed in range(5):
        logits = random_logits(49152, seed, ties=False)
        assert (ours(logits, params) - theirs(logits, params)).abs().max() <= TOLERANCE


@pytest.mark.parametrize("penalty", [0.5, 1.1, 2.0])
def test_repetition_penalty_equals_transformers(penalty: float) -> None:
    vocabulary = small_vocabulary(100)
    req = request(SamplingParams(repetition_penalty=penalty), prompt=[5, 8, 8, 13], output=[8, 40, 77])
    for seed in range(8):
        logits = random_logits(100, seed, ties=False)
        expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([req.all_ids]), logits.clone())
        Sampler(vocabulary).adjust(logits, SamplingInfo.from_requests([req], vocabulary, CPU))
        assert torch.equal(logits, expected)
