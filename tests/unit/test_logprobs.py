from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from shared_runtime.logprobs import raw_logprobs, sampled_logprobs

# float64 throughout: what is left is rounding.
EXACT = 1e-12


def some_logits(rows: int, width: int = 50) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(3)) * 3


def naive_logprob(logits: list[float], token_id: int, allowed: set[int] | None = None) -> float:
    total = math.fsum(math.exp(v) for i, v in enumerate(logits) if allowed is None or i in allowed)
    return logits[token_id] - math.log(total)


def masked(logits: Tensor, allowed: set[int]) -> Tensor:
    out = torch.full_like(logits, -math.inf)
    out[:, sorted(allowed)] = logits[:, sorted(allowed)]
    return out


def test_raw_logprobs_are_those_of_the_model_and_sum_to_one() -> None:
    logits = some_logits(3)
    for row, (token_id, found) in enumerate(zip([4, 0, 49], raw_logprobs(logits, [4, 0, 49], 50), strict=True)):
        assert found.token_id == token_id
        assert found.logprob == pytest.approx(naive_logprob(logits[row].tolist(), token_id), abs=EXACT)
        assert found.masked_logprob == found.logprob
        assert math.fsum(math.exp(value) for _, value in found.top) == pytest.approx(1.0, abs=EXACT)


def test_the_masked_logprob_is_the_raw_distribution_renormalised_over_the_allowed_tokens() -> None:
    logits, allowed = some_logits(1), {3, 9, 20}
    adjusted = logits + torch.linspace(-5, 5, 50)
    found = sampled_logprobs(logits, masked(adjusted, allowed), [9], 0)[0]
    assert found.logprob == pytest.approx(naive_logprob(logits[0].tolist(), 9), abs=EXACT)
    assert found.masked_logprob == pytest.approx(naive_logprob(logits[0].tolist(), 9, allowed), abs=EXACT)
    assert found.masked_logprob > found.logprob


def test_the_only_allowed_token_has_masked_probability_one() -> None:
    logits = some_logits(1)
    assert sampled_logprobs(logits, masked(logits, {7}), [7], 0)[0].masked_logprob == pytest.approx(0, abs=EXACT)


def test_in_a_free_row_masked_and_raw_logprob_are_the_same_number() -> None:
    logits = some_logits(40)
    logits[20:, :10] = -math.inf
    for found in sampled_logprobs(logits, logits * 2 + 1, list(range(10, 50)), 0):
        assert found.masked_logprob == found.logprob


def test_padding_beyond_the_vocabulary_in_the_masked_logits_changes_nothing() -> None:
    logits = some_logits(1)
    padded = torch.cat([masked(logits, {3, 4}), torch.full((1, 14), -math.inf)], dim=1)
    assert sampled_logprobs(logits, padded, [3], 2) == sampled_logprobs(logits, masked(logits, {3, 4}), [3], 2)


def test_an_extra_stop_id_admitted_after_the_mask_has_a_finite_masked_logprob() -> None:
    logits = some_logits(1)
    found = sampled_logprobs(logits, masked(logits, {3, 4}), [30], 0)[0]
    assert found.masked_logprob == pytest.approx(naive_logprob(logits[0].tolist(), 30, {3, 4, 30}), abs=EXACT)


def test_alternatives_come_best_first_and_equal_ones_by_id() -> None:
    logits = torch.zeros(1, 12)
    logits[0, [9, 2, 5]] = 1.0
    logits[0, 7] = 3.0
    found = raw_logprobs(logits, [0], 5)[0]
    assert [token_id for token_id, _ in found.top] == [7, 2, 5, 9, 0]
    assert [value for _, value in found.top] == sorted((value for _, value in found.top), reverse=True)


def test_more_alternatives_than_tokens_gives_every_token_once() -> None:
    found = raw_logprobs(some_logits(1, 6), [0], 20)[0]
    assert sorted(token_id for token_id, _ in found.top) == list(range(6))


def test_none_are_listed_when_none_were_asked_for() -> None:
    assert raw_logprobs(some_logits(1), [0], 0)[0].top == []


def test_a_row_alone_has_bit_identical_logprobs_to_the_row_in_company() -> None:
    logits = some_logits(16, 1003)
    support = masked(logits, set(range(0, 1003, 3)))
    ids = list(range(0, 48, 3))
    together = sampled_logprobs(logits, support, ids, 3)
    for row in range(16):
        assert sampled_logprobs(logits[row:row + 1], support[row:row + 1], [ids[row]], 3) == [together[row]]


def test_one_id_a_row_is_required() -> None:
    with pytest.raises(ValueError, match="2 ids for 3 rows"):
        raw_logprobs(some_logits(3), [1, 2], 0)


def test_no_rows_give_no_entries() -> None:
    assert raw_logprobs(some_logits(0), [], 3) == []
