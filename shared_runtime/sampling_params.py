"""How one request wants its tokens chosen: a value that checks itself."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from shared_runtime.errors import RequestError
from shared_runtime.vocabulary import Vocabulary

_NO_LIMIT = sys.float_info.max
_FLOAT32_MAX = 3.4e38
_SWITCHED_OFF = {"top_p": "use 1.0 to switch it off", "repetition_penalty": "use 1.0 to switch it off"}


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters of one request.

    Attributes:
        max_new_tokens: most tokens to emit, the stop token included. At least 1.
        min_new_tokens: no stop token before this many tokens; a grammar that allows nothing else wins.
        temperature: 0 is greedy (ties take the lowest id); otherwise logits are divided by it.
        top_k: keep the k largest; 0 keeps all.
        top_p: keep the smallest set whose probability reaches p, in (0, 1].
        min_p: keep tokens whose probability is at least min_p times the largest, in [0, 1].
        repetition_penalty: above 0; logits of tokens in prompt or output are divided by it (positive ones) or
            multiplied (negative ones).
        frequency_penalty: subtracted once per occurrence in the output, in [-2, 2].
        presence_penalty: subtracted once for a token that occurs in the output, in [-2, 2].
        logit_bias: token id -> value added to its logit.
        seed: at least 0; noise is a function of seed and position, so company never changes it. None draws
            one.
        n: independent answers; answer i uses seed + i.
        stop: strings that end the text; they are cut off, and never shown while streaming.
        stop_token_ids: ids that end the text beside the model's own stop set; under a grammar only where it
            accepts.
        ignore_eos: go on past the model's stop set; a terminated grammar ends the request all the same.
        logprobs: return the log-probability of each output token.
        top_logprobs: how many best alternatives to return at each output position (implies logprobs).
        prompt_logprobs: return log-probabilities for the prompt's tokens too.
        thinking: whether a constrained answer begins with a reasoning part, where the engine has a `think_end`. False
            when the prompt has closed that part already.
        thinking_budget: most tokens of that part, `think_end` not counted; once they are used up nothing but
            `think_end` may come. None sets no limit; the part counts towards `max_new_tokens` all the same.
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: bool = False
    top_logprobs: int = 0
    prompt_logprobs: bool = False
    thinking: bool = True
    thinking_budget: int | None = None

    def __post_init__(self) -> None:
        # Values come from JSON and the command line, so their types are checked too; numbers become floats.
        _whole("max_new_tokens", self.max_new_tokens, 1)
        _whole("min_new_tokens", self.min_new_tokens, 0)
        _whole("n", self.n, 1)
        _whole("top_k", self.top_k, 0)
        _whole("top_logprobs", self.top_logprobs, 0)
        if self.seed is not None:
            _whole("seed", self.seed, 0)
        if self.thinking_budget is not None:
            _whole("thinking_budget", self.thinking_budget, 0)
        _flag("thinking", self.thinking)
        _flag("ignore_eos", self.ignore_eos)
        _flag("logprobs", self.logprobs)
        _flag("prompt_logprobs", self.prompt_logprobs)
        set_field = partial(object.__setattr__, self)
        set_field("temperature", _number("temperature", self.temperature, 0.0, _NO_LIMIT))
        set_field("top_p", _number("top_p", self.top_p, 0.0, 1.0, above=True))
        set_field("min_p", _number("min_p", self.min_p, 0.0, 1.0))
        set_field("repetition_penalty",
                  _number("repetition_penalty", self.repetition_penalty, 0.0, _NO_LIMIT, above=True))
        set_field("frequency_penalty", _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0))
        set_field("presence_penalty", _number("presence_penalty", self.presence_penalty, -2.0, 2.0))
        set_field("logit_bias", _biases(self.logit_bias))
        set_field("stop", _stop_texts(self.stop))
        set_field("stop_token_ids", _token_ids(self.stop_token_ids))
        if self.min_new_tokens > self.max_new_tokens:
            raise RequestError(f"{self.min_new_tokens} is above max_new_tokens {self.max_new_tokens}",
                               where="min_new_tokens", fix="lower it or raise max_new_tokens")

    @property
    def greedy(self) -> bool:
        """True when the token is the argmax of the processed logits."""
        return self.temperature == 0.0

    @property
    def wants_logprobs(self) -> bool:
        """True when output tokens come with log-probabilities."""
        return self.logprobs or self.top_logprobs > 0

    def for_answer(self, index: int) -> SamplingParams:
        """The parameters of answer `index` of `n`: one answer, its own seed."""
        seed = None if self.seed is None else self.seed + index
        return replace(self, n=1, seed=seed)


def check_against(params: SamplingParams, vocabulary: Vocabulary) -> None:
    """Check what only a vocabulary can tell: that the ids a request names exist. Padding ids do not.

    Raises:
        RequestError: naming the parameter and the id.
    """
    size = len(vocabulary)
    for name, ids in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
        for token_id in ids:
            if token_id >= size:
                raise RequestError(f"token id {token_id} does not exist", where=name,
                                   fix=f"the tokenizer's ids are 0 to {size - 1}")
    if params.top_logprobs > size:
        raise RequestError(f"{params.top_logprobs} alternatives of {size} tokens", where="top_logprobs",
                           fix=f"use at most {size}")


def _whole(name: str, value: object, lowest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"must be a whole number, not {value!r}", where=name)
    if value < lowest:
        raise RequestError(f"must be at least {lowest}, not {value}", where=name)


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise RequestError(f"must be true or false, not {value!r}", where=name)


def _number(name: str, value: object, lowest: float, highest: float, *, above: bool = False) -> float:
    """`value` as a float in [lowest, highest], or in (lowest, highest] when it must be `above`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"must be a number, not {value!r}", where=name)
    if lowest < value <= highest or (value == lowest and not above):
        return float(value)
    if highest == _NO_LIMIT:
        limits = f"must be finite and {'above' if above else 'at least'} {lowest:g}"
    else:
        limits = f"must be in {'(' if above else '['}{lowest:g}, {highest:g}]"
    fix = _SWITCHED_OFF.get(name) if value == lowest else None
    raise RequestError(f"{limits}, not {value}", where=name, fix=fix)


def _biases(value: object) -> dict[int, float]:
    """A copy, so that nobody changes a request's parameters under it."""
    if not isinstance(value, Mapping):
        raise RequestError(f"must map token ids to numbers, not {value!r}", where="logit_bias")
    checked = {}
    for token_id, bias in value.items():
        _whole("logit_bias", token_id, 0)
        checked[token_id] = _number(f"logit_bias of token {token_id}", bias, -_FLOAT32_MAX, _FLOAT32_MAX)
    return checked


def _stop_texts(value: object) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, Iterable):
        raise RequestError(f"must be a string or several, not {value!r}", where="stop")
    checked = []
    for text in texts:
        if not isinstance(text, str):
            raise RequestError(f"must be a string, not {text!r}", where="stop")
        if not text:
            raise RequestError("a stop string is empty", where="stop", fix="leave it out")
        checked.append(text)
    return tuple(checked)


def _token_ids(value: object) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise RequestError(f"must be a list of token ids, not {value!r}", where="stop_token_ids")
    checked = tuple(value)
    for token_id in checked:
        _whole("stop_token_ids", token_id, 0)
    return checked
