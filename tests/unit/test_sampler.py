"""The rules of the sampler, above all where settings fight each other or a grammar."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shared_runtime.sampler import Sampler, lowest_argmax, naive_lowest_argmax
from shared_runtime.sampling_info import SamplingInfo
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.vocabulary import Vocabulary
from tests.unit.sampling_cases import (
    CPU,
    naive_adjust,
    request,
    run,
    small_vocabulary,
)

CASES = Path(__file__).parents[1] / "data" / "cases.jsonl"
EOS = 2
NAN, INF = math.nan, math.inf


def logits_of(*rows: dict[int, float], width: int = 16) -> Tensor:
    """Rows of zeros but for the given ids."""
    logits = torch.zeros(len(rows), width)
    for row, values in enumerate(rows):
        for token_id, value in values.items():
            logits[row, token_id] = value
    return logits


def random_logits(rows: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * 2


# Greedy

@pytest.mark.parametrize("width", [4, 16, 1003, 49152])
def test_greedy_ties_take_the_lowest_id(width: int) -> None:
    vocabulary = small_vocabulary(width)
    logits = torch.zeros(3, width)
    logits[1, width // 2:] = 1.0
    logits[2, [width - 1, 1]] = 2.0
    assert run(logits, [request()] * 3, vocabulary).token_ids == [0, width // 2, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 7, 64, 1000])
def test_the_fast_argmax_takes_the_id_that_the_naive_one_takes(dtype: torch.dtype, width: int) -> None:
    """Few different values, so that ties are everywhere; zeros of both signs, which are equal; rows of one value."""
    generator = torch.Generator().manual_seed(width)
    scores = torch.randint(-2, 3, (60, width), generator=generator).to(dtype)
    scores[scores == -2] = -INF
    scores[20:40] *= -0.0
    scores[57], scores[58], scores[59, -1] = -INF, 1.0, INF
    peak = scores.amax(-1, keepdim=True)
    known = ~peak.squeeze(1).isnan()
    assert torch.equal(lowest_argmax(scores, peak)[known], naive_lowest_argmax(scores, peak)[known])
    assert known.sum() >= 40
    strided = torch.stack([scores, scores - 1], -1)[..., 0]
    assert torch.equal(lowest_argmax(strided, peak)[known], naive_lowest_argmax(strided, peak)[known])


def test_greedy_building_makes_no_tensor() -> None:
    info = SamplingInfo.from_requests([request(), request()], small_vocabulary(), CPU)
    built = [info.random, info.bias, info.repetition, info.presence, info.extra_stops, info.early_stops,
             info.grammars]
    assert built == [None] * 7


# Penalties and bias

@pytest.mark.parametrize("params", [
    SamplingParams(logit_bias={3: 1.5, 7: -2.0}),
    SamplingParams(repetition_penalty=1.7),
    SamplingParams(repetition_penalty=0.6),
    SamplingParams(frequency_penalty=0.9),
    SamplingParams(presence_penalty=-1.1),
    SamplingParams(logit_bias={5: 3.0}, repetition_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.4),
])
def test_adjusted_logits_equal_the_naive_rule_token_by_token(params: SamplingParams) -> None:
    vocabulary = small_vocabulary(14, width=16)
    reqs = [request(params, prompt=[3, 3, 7], output=[5, 9, 5, 5]), request(), request(params, prompt=[1])]
    logits = random_logits(3, 16)
    adjusted = logits.clone()
    Sampler(vocabulary).adjust(adjusted, SamplingInfo.from_requests(reqs, vocabulary, CPU))
    for row, req in enumerate(reqs):
        # One or two float32 roundings of values below 10.
        assert adjusted[row].tolist() == pytest.approx(naive_adjust(logits[row].tolist(), req, 14), abs=2e-6)


def test_a_prompt_counts_for_repetition_but_not_for_frequency_and_presence() -> None:
    logits = logits_of({5: 2.0, 6: 1.9})
    for params in (SamplingParams(frequency_penalty=2.0), SamplingParams(presence_penalty=2.0)):
        assert run(logits, [request(params, prompt=[5])], small_vocabulary()).token_ids == [5]
        assert run(logits, [request(params, output=[5])], small_vocabulary()).token_ids == [6]
    params = SamplingParams(repetition_penalty=1.5)
    assert run(logits, [request(params, prompt=[5])], small_vocabulary()).token_ids == [6]


# Padding

@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padding_ids_are_never_chosen_in_free_or_constrained_rows(temperature: float) -> None:
    vocabulary = small_vocabulary(10, width=16)
    logits = logits_of({12: 50.0, 5: 1.0}, {15: 50.0, 6: 1.0})
    params = SamplingParams(temperature=temperature)
    output = run(logits, [request(params), request(params, constrained=True)], vocabulary, allowed={1: [6, 12, 15]})
    assert output.token_ids[0] < 10
    assert output.token_ids[1] == 6
    assert not output.errors


def test_hand_050_padded_vocabulary_never_yields_a_padding_id() -> None:
    rows = map(json.loads, CASES.read_text(encoding="utf-8").splitlines())
    case = next(row for row in rows if row["id"] == "hand-050")
    assert case["grammar"] == {"regex": "[a-z]+"}
    size, width, largest = 49152, 49280, 49200
    letters = [i for i in range(3, size) if i % 3 == 0]
    spelled = tuple(b"a" if i % 3 == 0 and i > 2 else b"A" for i in range(size))
    vocabulary = Vocabulary(spelled, frozenset(), frozenset({EOS}), width)
    logits = random_logits(4, width)
    logits[:, largest] = 100.0
    logits[:, width - 1] = INF
    greedy, drawn = SamplingParams(), SamplingParams(temperature=1.5)
    reqs = [request(greedy), request(greedy, constrained=True), request(drawn), request(drawn, constrained=True)]
    # The mask of a tokenizer-sized grammar knows nothing of padding, and says nothing about it.
    allowed = [*letters, *range(size, width)]
    output = run(logits, reqs, vocabulary, allowed={1: allowed, 3: allowed})
    assert not output.errors
    assert all(token_id < size for token_id in output.token_ids)
    assert {spelled[output.token_ids[1]], spelled[output.token_ids[3]]} == {b"a"}
    assert output.token_ids[0] == int(logits[0, :size].argmax())


# The mask comes last

@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_no_bias_or_penalty_revives_a_token_the_mask_forbids(temperature: float) -> None:
    params = SamplingParams(temperature=temperature, logit_bias={9: 1e6}, presence_penalty=-2.0,
                            repetition_penalty=0.01, frequency_penalty=-2.0)
    reqs = [request(params, seed=seed, output=[9, 9], constrained=True) for seed in range(50)]
    output = run(torch.zeros(50, 16), reqs, small_vocabulary(), allowed={row: [4, 5] for row in range(50)})
    assert set(output.token_ids) <= {4, 5}


def test_truncation_is_measured_on_what_the_mask_left() -> None:
    logits = logits_of({9: 30.0, 4: 1.0, 5: 1.0})
    for params in (SamplingParams(temperature=1.0, top_k=1), SamplingParams(temperature=1.0, top_p=0.1),
                   SamplingParams(temperature=1.0, min_p=0.9)):
        output = run(logits, [request(params, constrained=True)], small_vocabulary(), allowed={0: [4, 5, 6]})
        assert output.token_ids[0] in (4, 5)


# min_new_tokens and ignore_eos

def test_min_new_tokens_holds_back_stop_ids_and_extra_stop_ids_until_it_is_reached() -> None:
    params = SamplingParams(min_new_tokens=2, stop_token_ids=(7,))
    logits = logits_of({EOS: 9.0, 7: 8.0, 5: 1.0})
    outputs = [run(logits, [request(params, output=[4] * n)], small_vocabulary()) for n in range(3)]
    assert [output.token_ids for output in outputs] == [[5], [5], [EOS]]
    assert not any(output.warnings or output.errors for output in outputs)


def test_min_new_tokens_with_only_eos_left_lets_eos_win_with_a_warning() -> None:
    reqs = [request(SamplingParams(min_new_tokens=5), output=[4], constrained=True), request()]
    output = run(logits_of({}, {5: 1.0}), reqs, small_vocabulary(), allowed={0: [EOS]})
    assert output.token_ids == [EOS, 5]
    assert not output.errors
    assert output.warnings == {0: "min_new_tokens 5 was not reached: at output position 1 only a stop token was "
                                  "allowed"}


def test_min_new_tokens_does_not_hide_that_a_mask_left_nothing() -> None:
    req = request(SamplingParams(min_new_tokens=5), constrained=True)
    output = run(logits_of({}), [req], small_vocabulary(), allowed={0: []})
    assert (list(output.errors), output.warnings) == ([0], {})


def test_ignore_eos_under_a_grammar_goes_on_while_anything_else_is_allowed() -> None:
    req = request(SamplingParams(ignore_eos=True), constrained=True)
    logits = logits_of({EOS: 9.0})
    assert run(logits, [req], small_vocabulary(), allowed={0: [EOS, 6]}).token_ids == [6]
    terminated = run(logits, [req], small_vocabulary(), allowed={0: [EOS]})
    assert (terminated.token_ids, terminated.errors, terminated.warnings) == ([EOS], {}, {})


def test_ignore_eos_in_a_free_row_leaves_the_distribution_alone() -> None:
    output = run(logits_of({EOS: 9.0}), [request(SamplingParams(ignore_eos=True))], small_vocabulary())
    assert output.token_ids == [EOS]


# Extra stop ids

STOPS_AT_7 = SamplingParams(stop_token_ids=(7,))


def test_an_extra_stop_id_may_come_where_the_grammar_accepts_though_the_mask_forbids_it() -> None:
    logits = logits_of({7: 9.0, 5: 1.0})
    output = run(logits, [request(STOPS_AT_7, constrained=True)], small_vocabulary(), allowed={0: [5, EOS]})
    assert output.token_ids == [7]


def test_an_extra_stop_id_comes_with_its_bias_and_penalties() -> None:
    params = SamplingParams(stop_token_ids=(7,), logit_bias={7: -9.0})
    logits = logits_of({7: 9.0, 5: 1.0})
    output = run(logits, [request(params, constrained=True)], small_vocabulary(), allowed={0: [5, EOS]})
    assert output.token_ids == [5]


def test_an_extra_stop_id_may_not_come_where_the_grammar_does_not_accept_though_its_text_would_fit() -> None:
    logits = logits_of({7: 9.0, 5: 1.0})
    output = run(logits, [request(STOPS_AT_7, constrained=True)], small_vocabulary(), allowed={0: [5, 7]})
    assert output.token_ids == [5]


def test_an_extra_stop_id_that_is_all_a_grammar_allows_is_an_error_and_no_false_end() -> None:
    output = run(logits_of({7: 9.0}), [request(STOPS_AT_7, constrained=True)], small_vocabulary(), allowed={0: [7]})
    assert output.token_ids == [-1]
    assert "stop_token_ids" in output.errors[0]


def test_extra_stop_ids_of_a_free_row_and_of_a_neighbour_are_left_alone() -> None:
    reqs = [request(STOPS_AT_7), request(constrained=True), request(STOPS_AT_7, constrained=True)]
    logits = logits_of({7: 9.0}, {7: 9.0, 5: 1.0}, {7: 9.0})
    output = run(logits, reqs, small_vocabulary(), allowed={1: [5, EOS], 2: [5, EOS]})
    assert output.token_ids == [7, 5, 7]


def test_a_model_stop_id_named_again_as_an_extra_one_follows_the_mask() -> None:
    req = request(SamplingParams(stop_token_ids=(EOS,)), constrained=True)
    logits = logits_of({EOS: 9.0, 5: 1.0})
    assert run(logits, [req], small_vocabulary(), allowed={0: [5]}).token_ids == [5]
    assert run(logits, [req], small_vocabulary(), allowed={0: [5, EOS]}).token_ids == [EOS]


def test_without_a_model_stop_set_no_state_accepts_and_a_free_row_still_stops() -> None:
    vocabulary = small_vocabulary(stop_ids=frozenset())
    reqs = [request(STOPS_AT_7, constrained=True), request(STOPS_AT_7)]
    output = run(logits_of({7: 9.0}, {7: 9.0}), reqs, vocabulary, allowed={0: [5, 7]})
    assert output.token_ids == [5, 7]


# Broken rows

@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("broken", [{5: NAN}, {5: INF}, dict.fromkeys(range(16), -INF), dict.fromkeys(range(16), NAN)],
                         ids=["nan", "inf", "all -inf", "all nan"])
def test_a_broken_row_fails_alone(broken: dict[int, float], temperature: float) -> None:
    params = SamplingParams(temperature=temperature, top_k=5, top_p=0.9, min_p=0.01)
    reqs = [request(params, seed=row) for row in range(3)]
    healthy = random_logits(3, 16)
    expected = run(healthy, reqs, small_vocabulary()).token_ids
    logits = healthy.clone()
    logits[1] = logits_of(broken)[0]
    output = run(logits, reqs, small_vocabulary())
    assert output.token_ids == [expected[0], -1, expected[2]]
    assert list(output.errors) == [1]
    assert "model's logits" in output.errors[1]


def test_a_mask_that_leaves_nothing_fails_the_row_and_names_the_constraint() -> None:
    output = run(logits_of({}, {}), [request(constrained=True), request()], small_vocabulary(), allowed={0: []})
    assert output.token_ids == [-1, 0]
    assert list(output.errors) == [0]
    assert "constraint" in output.errors[0]


def test_nan_in_the_raw_logits_fails_the_row_though_the_mask_hides_it() -> None:
    logits = logits_of({9: NAN, 5: 1.0})
    output = run(logits, [request(constrained=True)], small_vocabulary(), allowed={0: [5]})
    assert list(output.errors) == [0]


def test_penalties_that_overflow_are_named_as_the_cause() -> None:
    params = SamplingParams(logit_bias={5: 3e38}, repetition_penalty=0.001)
    output = run(logits_of({5: 1e38}), [request(params, prompt=[5])], small_vocabulary())
    assert "penalty" in output.errors[0]


def test_a_tiny_temperature_draws_the_greedy_token_and_overflows_nowhere() -> None:
    logits = random_logits(1, 64)
    for temperature in (1e-6, 1e-30, 5e-324):
        output = run(logits, [request(SamplingParams(temperature=temperature))], small_vocabulary(64))
        assert output.token_ids == [int(logits.argmax())]
        assert not output.errors


# Misuse

def test_logits_of_another_shape_or_type_are_refused() -> None:
    vocabulary = small_vocabulary()
    sampler, info = Sampler(vocabulary), SamplingInfo.from_requests([request()], vocabulary, CPU)
    for wrong in (torch.zeros(2, 16), torch.zeros(1, 15), torch.zeros(1, 16, dtype=torch.bfloat16)):
        with pytest.raises(ValueError, match="logits must be"):
            sampler.adjust(wrong, info)
    with pytest.raises(ValueError, match="adjust"):
        sampler.sample(torch.zeros(1, 16), info)
