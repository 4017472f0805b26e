from __future__ import annotations

import math
from dataclasses import asdict
from typing import cast

import pytest

from shared_runtime.errors import RequestError
from shared_runtime.sampling_params import SamplingParams, check_against
from tests.unit.sampling_cases import small_vocabulary


def params_from(**values: object) -> SamplingParams:
    """As they arrive from JSON: any value under any name."""
    return SamplingParams(**values)  # type: ignore[arg-type]  # wrong types are what is tested


@pytest.mark.parametrize(("name", "value", "message"), [
    ("max_new_tokens", 0, "max_new_tokens: must be at least 1, not 0"),
    ("max_new_tokens", True, "max_new_tokens: must be a whole number, not True"),
    ("max_new_tokens", 3.0, "max_new_tokens: must be a whole number, not 3.0"),
    ("min_new_tokens", -1, "min_new_tokens: must be at least 0, not -1"),
    ("n", 0, "n: must be at least 1, not 0"),
    ("top_k", -1, "top_k: must be at least 0, not -1"),
    ("top_logprobs", "5", "top_logprobs: must be a whole number, not '5'"),
    ("seed", -1, "seed: must be at least 0, not -1"),
    ("seed", 1.5, "seed: must be a whole number, not 1.5"),
    ("temperature", -0.1, "temperature: must be finite and at least 0, not -0.1"),
    ("temperature", math.inf, "temperature: must be finite and at least 0, not inf"),
    ("temperature", math.nan, "temperature: must be finite and at least 0, not nan"),
    ("temperature", "hot", "temperature: must be a number, not 'hot'"),
    ("temperature", True, "temperature: must be a number, not True"),
    ("temperature", 10**400, "temperature: must be finite"),
    ("top_p", 0, "top_p: must be in (0, 1], not 0 (use 1.0 to switch it off)"),
    ("top_p", 1.01, "top_p: must be in (0, 1], not 1.01"),
    ("min_p", -0.5, "min_p: must be in [0, 1], not -0.5"),
    ("repetition_penalty", 0.0, "repetition_penalty: must be finite and above 0, not 0.0 (use 1.0 to switch it off)"),
    ("frequency_penalty", 2.5, "frequency_penalty: must be in [-2, 2], not 2.5"),
    ("presence_penalty", -3, "presence_penalty: must be in [-2, 2], not -3"),
    ("logit_bias", [3], "logit_bias: must map token ids to numbers, not [3]"),
    ("logit_bias", {"3": 1.0}, "logit_bias: must be a whole number, not '3'"),
    ("logit_bias", {-3: 1.0}, "logit_bias: must be at least 0, not -3"),
    ("logit_bias", {3: math.inf}, "logit_bias of token 3: must be in [-3.4e+38, 3.4e+38], not inf"),
    ("logit_bias", {3: "big"}, "logit_bias of token 3: must be a number, not 'big'"),
    ("stop", "", "stop: a stop string is empty (leave it out)"),
    ("stop", ["a", ""], "stop: a stop string is empty (leave it out)"),
    ("stop", ["a", 3], "stop: must be a string, not 3"),
    ("stop", 3, "stop: must be a string or several, not 3"),
    ("stop_token_ids", 7, "stop_token_ids: must be a list of token ids, not 7"),
    ("stop_token_ids", "7", "stop_token_ids: must be a list of token ids, not '7'"),
    ("stop_token_ids", [7, -1], "stop_token_ids: must be at least 0, not -1"),
    ("stop_token_ids", [True], "stop_token_ids: must be a whole number, not True"),
    ("ignore_eos", 1, "ignore_eos: must be true or false, not 1"),
    ("logprobs", "yes", "logprobs: must be true or false, not 'yes'"),
    ("prompt_logprobs", None, "prompt_logprobs: must be true or false, not None"),
])
def test_a_bad_value_is_refused_naming_the_parameter_the_rule_and_the_value(
        name: str, value: object, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        params_from(**{name: value})
    assert str(caught.value).startswith(message)
    assert name in cast(str, caught.value.where)


def test_every_parameter_is_checked() -> None:
    class Odd:
        """Nothing that any parameter could mean."""

    for name in asdict(SamplingParams()):
        with pytest.raises(RequestError) as caught:
            params_from(**{name: Odd()})
        assert name in cast(str, caught.value.where)


def test_whole_numbers_are_fine_for_real_parameters_and_become_floats() -> None:
    params = SamplingParams(temperature=1, top_p=1, min_p=0, repetition_penalty=2, frequency_penalty=-1,
                            presence_penalty=1, logit_bias={3: 4})
    for name in ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty"):
        assert isinstance(asdict(params)[name], float)
    assert isinstance(params.logit_bias[3], float)


def test_one_stop_string_and_lists_become_tuples() -> None:
    assert params_from(stop="END").stop == ("END",)
    assert params_from(stop=["a", "b"]).stop == ("a", "b")
    assert params_from(stop_token_ids=[3, 4]).stop_token_ids == (3, 4)


def test_a_bias_changed_by_its_owner_afterwards_does_not_reach_the_request() -> None:
    bias = {3: 1.0}
    params = SamplingParams(logit_bias=bias)
    bias[3] = math.nan
    assert params.logit_bias == {3: 1.0}


def test_min_new_tokens_above_max_new_tokens_is_refused() -> None:
    assert SamplingParams(min_new_tokens=5, max_new_tokens=5).min_new_tokens == 5
    with pytest.raises(RequestError, match="min_new_tokens: 6 is above max_new_tokens 5"):
        SamplingParams(min_new_tokens=6, max_new_tokens=5)


def test_answer_i_of_n_uses_seed_plus_i_and_is_one_answer() -> None:
    params = SamplingParams(n=4, seed=10, temperature=1.0)
    answers = [params.for_answer(i) for i in range(4)]
    assert [answer.seed for answer in answers] == [10, 11, 12, 13]
    assert {answer.n for answer in answers} == {1}
    assert SamplingParams(n=2).for_answer(1).seed is None


def test_asking_for_alternatives_asks_for_logprobs() -> None:
    assert SamplingParams(top_logprobs=1).wants_logprobs
    assert SamplingParams(logprobs=True).wants_logprobs
    assert not SamplingParams(prompt_logprobs=True).wants_logprobs


@pytest.mark.parametrize(("params", "message"), [
    (SamplingParams(logit_bias={3: 1.0, 10: 1.0}), "logit_bias: token id 10 does not exist"),
    (SamplingParams(stop_token_ids=(3, 12)), "stop_token_ids: token id 12 does not exist"),
    (SamplingParams(top_logprobs=11), "top_logprobs: 11 alternatives of 10 tokens"),
])
def test_ids_outside_the_vocabulary_are_refused_naming_the_id_padding_ids_too(
        params: SamplingParams, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_against(params, small_vocabulary(10, width=16))
    assert str(caught.value).startswith(message)


def test_ids_of_the_vocabulary_are_accepted_up_to_the_last() -> None:
    params = SamplingParams(logit_bias={0: 1.0, 9: 1.0}, stop_token_ids=(9,), top_logprobs=10)
    check_against(params, small_vocabulary(10, width=16))
