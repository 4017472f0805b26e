"""Requests and results as JSON values: the shapes that `jumpforward/schemas/` describes."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from jumpforward.options import Prompt
from jumpforward.validity import is_valid
from shared_runtime.constraint import Constraint
from shared_runtime.sampling_params import SamplingParams

if TYPE_CHECKING:
    from shared_runtime.request import TokenLogprobs
    from shared_runtime.result import Result

JsonObject = dict[str, object]


def schema_text(name: str) -> str:
    """The JSON Schema of what a command prints with `--json`: "run", "compare" or "check"."""
    return files("jumpforward").joinpath("schemas", f"{name}.schema.json").read_text(encoding="utf-8")


def request_json(prompt: Prompt, sampling: SamplingParams, constraint: Constraint | None, model: str) -> JsonObject:
    """What was asked."""
    return {
        "model": model, "prompt": prompt.text, "messages": prompt.messages,
        "constraint": None if constraint is None else {
            "kind": constraint.kind, "source": constraint.source, "choices": list(constraint.choices)},
        "sampling": {
            "max_new_tokens": sampling.max_new_tokens, "min_new_tokens": sampling.min_new_tokens,
            "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p,
            "min_p": sampling.min_p, "repetition_penalty": sampling.repetition_penalty,
            "frequency_penalty": sampling.frequency_penalty, "presence_penalty": sampling.presence_penalty,
            "seed": sampling.seed, "n": sampling.n, "stop": list(sampling.stop),
            "stop_token_ids": list(sampling.stop_token_ids), "ignore_eos": sampling.ignore_eos,
            "thinking": sampling.thinking, "thinking_budget": sampling.thinking_budget,
        },
    }


def answer_json(result: Result, constraint: Constraint | None) -> JsonObject:
    """One answer of `run`: text, tokens, verdict, counts and times."""
    return {
        "index": result.index, "text": result.text, "reasoning": result.reasoning, "answer": result.answer,
        "token_ids": result.token_ids, "origins": result.origins, "finish_reason": result.finish_reason,
        "matched": result.matched, "valid": is_valid(constraint, result.answer), "warnings": result.warnings,
        "counts": result.counts, "ms": result.ms, "metrics": result.metrics.as_dict(),
        "logprobs": [_logprobs_json(one) for one in result.logprobs],
        "prompt_logprobs": [_logprobs_json(one) for one in result.prompt_logprobs],
    }


def _logprobs_json(one: TokenLogprobs) -> JsonObject:
    return {"token_id": one.token_id, "logprob": _finite(one.logprob), "masked_logprob": _finite(one.masked_logprob),
            "top": [[token_id, _finite(value)] for token_id, value in one.top]}


def _finite(value: float) -> float | None:
    """JSON has no infinities: the log of a zero probability is null."""
    return value if -float("inf") < value < float("inf") else None
