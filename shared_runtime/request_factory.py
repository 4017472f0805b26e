"""What a user asked, checked and made into requests. Everything that can be refused at once is refused here."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from shared_runtime.config import EngineConfig
from shared_runtime.constrain.using.reasoning import think_end_id
from shared_runtime.constraint import Constraint
from shared_runtime.detokenizer import IncrementalDetokenizer
from shared_runtime.errors import RequestError
from shared_runtime.metrics import RequestMetrics
from shared_runtime.model.config import ModelConfig
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams, check_against
from shared_runtime.tokenizer import Tokenizer

Message = Mapping[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt as the user gave it: exactly one of `prompt`, `messages` and `prompt_ids`, and what binds it."""

    prompt: str | None = None
    messages: Sequence[Message] | None = None
    prompt_ids: Sequence[int] | None = None
    sampling: SamplingParams | None = None
    constraint: Constraint | None = None


class RequestFactory:
    """Makes requests, numbers them and gives them seeds."""

    def __init__(self, config: EngineConfig, model: ModelConfig, tokenizer: Tokenizer) -> None:
        self._context = model.context_length
        self._pool = config.kv_pool_tokens
        name = config.options.think_end
        self._think_end = None if name is None else think_end_id(tokenizer, name)
        self._tokenizer = tokenizer
        self._longest_token = max(map(len, tokenizer.vocabulary.token_bytes))
        self._seeds = random.Random(config.seed)
        self._count = 0

    def new_rid(self) -> str:
        """An id that was not used before."""
        self._count += 1
        return f"req-{self._count}"

    def make(self, ask: Ask, rid: str) -> list[Request]:
        """The `n` requests of one ask, named `rid` or, for n > 1, `rid/0`, `rid/1`, ...

        Raises:
            RequestError: it cannot be served, and why.
        """
        _check_type("constraint", ask.constraint, Constraint, "use Constraint.regex(...) or one of its kind")
        _check_type("sampling", ask.sampling, SamplingParams, "use SamplingParams(...)")
        params = ask.sampling or SamplingParams()
        check_against(params, self._tokenizer.vocabulary)
        if params.thinking_budget is not None and (ask.constraint is None or self._think_end is None):
            raise RequestError("only a constrained request of an engine with a think_end has a budget to keep to",
                               where="thinking_budget", fix="leave it out, or set think_end")
        if ask.constraint is not None and params.thinking and self._think_end in params.stop_token_ids:
            raise RequestError(f"token {self._think_end} ends the reasoning part, and the answer comes after it",
                               where="stop_token_ids", fix="leave it out, or set thinking=False")
        text, ids = self._prompt(ask)
        params, warnings = self._fit(ids, params)
        seed = self._seeds.getrandbits(48) if params.seed is None else params.seed
        names = [rid] if params.n == 1 else [f"{rid}/{index}" for index in range(params.n)]
        return [self._request(name, text, ids, params.for_answer(index), seed + index, ask.constraint, warnings)
                for index, name in enumerate(names)]

    def _request(self, name: str, text: str, ids: list[int], params: SamplingParams, seed: int,
                 constraint: Constraint | None, warnings: list[str]) -> Request:
        self._count += 1
        return Request(
            rid=name, prompt_ids=ids, prompt=text, sampling=params, seed=seed, constraint=constraint,
            priority=self._count, warnings=list(warnings),
            detokenizer=IncrementalDetokenizer(self._tokenizer.vocabulary, params.stop),
            metrics=RequestMetrics(arrival=time.perf_counter(), prompt_tokens=len(ids)))

    def _prompt(self, ask: Ask) -> tuple[str, list[int]]:
        """Text and ids of what was asked."""
        if sum(given is not None for given in (ask.prompt, ask.messages, ask.prompt_ids)) != 1:
            raise RequestError("give exactly one of prompt, messages and prompt_ids", where="prompt")
        _check_type("prompt", ask.prompt, str, "give text")
        if ask.messages is not None:
            ids = self._tokenizer.apply_chat(ask.messages)
        elif ask.prompt_ids is not None:
            ids, width = list(ask.prompt_ids), len(self._tokenizer.vocabulary)
            for token_id in ids:
                _check_type("prompt_ids", token_id, int, "give whole numbers")
            unknown = [token_id for token_id in ids if not 0 <= token_id < width]
            if unknown:
                raise RequestError(f"token id {unknown[0]!r} is not in the vocabulary of {width}", where="prompt_ids")
        else:
            text = ask.prompt or ""
            most = self._context * self._longest_token
            if len(text) > most:  # before it is encoded, which takes seconds for a few megabytes
                raise RequestError(f"{len(text)} characters are more than {self._context} tokens of context can hold",
                                   where="prompt", fix="shorten it")
            ids = self._tokenizer.encode_prompt(text)
        if not ids:
            raise RequestError("the prompt is empty", where="prompt", fix="give at least one token to start from")
        return (self._tokenizer.decode(ids) if ask.prompt is None else ask.prompt), ids

    def _fit(self, ids: list[int], params: SamplingParams) -> tuple[SamplingParams, list[str]]:
        """The parameters, cut to the context, with a warning when they were.

        `BatchBuilder` lives on what is refused here: whatever is admitted fits into the pool when it is alone.
        """
        if len(ids) >= self._context:
            raise RequestError(f"the prompt has {len(ids)} tokens and the model's context is {self._context}",
                               where="prompt", fix="shorten it")
        warnings: list[str] = []
        room = self._context - len(ids)
        if params.max_new_tokens > room:
            warnings.append(f"max_new_tokens lowered from {params.max_new_tokens} to {room}: "
                            f"the model's context is {self._context} tokens")
            params = replace(params, max_new_tokens=room, min_new_tokens=min(params.min_new_tokens, room))
        if len(ids) + params.max_new_tokens > self._pool:
            raise RequestError(
                f"prompt ({len(ids)} tokens) and max_new_tokens ({params.max_new_tokens}) need more than the "
                f"{self._pool} tokens of the KV pool", where="max_new_tokens",
                fix="lower it, or give the engine a larger kv_pool_tokens")
        return params, warnings


def _check_type(where: str, value: object, kind: type, fix: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise RequestError(f"{value!r} is no {kind.__name__}", where=where, fix=fix)


def pair_up(prompts: str | Sequence[str] | None, messages: Sequence[Message] | Sequence[Sequence[Message]] | None,
            sampling: SamplingParams | Sequence[SamplingParams | None] | None,
            constraint: Constraint | Sequence[Constraint | None] | None) -> list[Ask]:
    """One `Ask` a prompt or conversation, with its own or the common parameters and constraint.

    Raises:
        RequestError: both or neither of prompts and messages, or lists of different lengths.
    """
    if (prompts is None) == (messages is None):
        raise RequestError("give either prompts or messages", where="prompts")
    if prompts is not None:
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        asks = [Ask(prompt=text) for text in texts]
    else:
        asks = [Ask(messages=conversation) for conversation in _conversations(messages or [])]
    params = _for_each(sampling, SamplingParams, len(asks), "sampling")
    bounds = _for_each(constraint, Constraint, len(asks), "constraint")
    return [replace(ask, sampling=one, constraint=bound)
            for ask, one, bound in zip(asks, params, bounds, strict=True)]


def _conversations(messages: Sequence[Message] | Sequence[Sequence[Message]]) -> list[Sequence[Message]]:
    flat = [entry for entry in messages if isinstance(entry, Mapping)]
    if flat and len(flat) != len(messages):
        raise RequestError("messages mixes single messages and conversations", where="messages")
    if flat:
        return [flat]
    return [entry for entry in messages if not isinstance(entry, Mapping)]


def _for_each(value: T | Sequence[T | None] | None, kind: type[T], count: int, name: str) -> list[T | None]:
    if value is None or isinstance(value, kind):
        return [value] * count
    values = list(cast(Sequence[T | None], value))
    if len(values) != count:
        raise RequestError(f"{len(values)} values for {count} prompts", where=name, fix="give one, or one each")
    return values
