"""What a request's owner gets: pieces of text while it runs, and one result at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared_runtime.constrain.using.reasoning import ReasoningPart
from shared_runtime.errors import EngineStateError, JumpforwardError
from shared_runtime.metrics import RequestMetrics
from shared_runtime.request import FinishKind, Request, TokenLogprobs
from shared_runtime.trace import TokenOrigin, count_tokens


@dataclass(frozen=True, slots=True)
class Result:
    """A finished request.

    Attributes:
        rid: the request's id. index: which of `n` answers.
        prompt, prompt_ids: what went in. text: what came out, stop string cut off, control tokens not shown.
        reasoning, answer: `text` in two, without the token between them, where a constrained answer began with a
            reasoning part; otherwise None and `text`. Only the answer is in the constraint's language.
        token_ids: every token emitted, the stop token included. origins: how each came.
        finish_reason: `stop`, `length`, `abort` or `error`. matched: the stop string or stop token id.
        error: what went wrong, for `error`. warnings: what the user should know of a good result.
        logprobs, prompt_logprobs: when asked for; the prompt's first token has none.
        metrics: times and counts. counts: machine-independent. ms: compile, mask_per_step and total.
    """

    rid: str
    index: int
    prompt: str
    prompt_ids: list[int]
    text: str
    reasoning: str | None
    answer: str
    token_ids: list[int]
    origins: list[TokenOrigin]
    finish_reason: FinishKind
    matched: str | int | None
    error: JumpforwardError | None
    warnings: list[str]
    logprobs: list[TokenLogprobs]
    prompt_logprobs: list[TokenLogprobs]
    metrics: RequestMetrics
    counts: dict[str, int] = field(default_factory=dict)
    ms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """What is new of a request.

    Attributes:
        rid, index: which answer. text: characters that are safe to show; joined, they are the final text.
        start, token_ids, origins: the output's tokens from position `start` on, and how each came. They take the
            place of what was told of these positions before: a stage may spell the same text with other ids.
        finished: True on the last event, which carries the `result`.
    """

    rid: str
    index: int
    text: str
    start: int
    token_ids: list[int]
    origins: list[TokenOrigin]
    finished: bool = False
    result: Result | None = None


def result_of(req: Request, index: int, thinks: ReasoningPart | None = None) -> Result:
    """The result of a request that has ended; `thinks` is the engine's, None for one without a `think_end`.

    Raises:
        EngineStateError: it has not.
    """
    finish, metrics = req.finish, req.metrics
    if finish is None or metrics.finished is None:
        raise EngineStateError(f"request {req.rid} has not ended", where="result")
    reasoning, answer = None, req.text
    if thinks is not None and req.constraint is not None and req.sampling.thinking:
        reasoning, answer = thinks.split(req.text, req.output_ids)
    return Result(
        rid=req.rid, index=index, prompt=req.prompt, prompt_ids=req.prompt_ids, text=req.text, reasoning=reasoning,
        answer=answer, token_ids=req.output_ids, origins=req.origins, finish_reason=finish.kind,
        matched=finish.matched, error=finish.error, warnings=req.warnings, logprobs=req.logprobs,
        prompt_logprobs=req.prompt_logprobs, metrics=metrics,
        counts={"forward_passes": metrics.forward_passes, **count_tokens(req.origins, metrics.drafted_tokens),
                "masks": metrics.masks, "reencoded": metrics.reencoded_tokens},
        ms={"compile": metrics.compile_s * 1e3, "mask_per_step": metrics.mask_s * 1e3 / max(1, metrics.masks),
            "total": (metrics.finished - metrics.arrival) * 1e3})


def refused(rid: str, prompt: str, error: JumpforwardError) -> Result:
    """The result of a request that was refused before it became one."""
    return Result(
        rid=rid, index=0, prompt=prompt, prompt_ids=[], text="", reasoning=None, answer="", token_ids=[], origins=[],
        finish_reason="error", matched=None, error=error, warnings=[], logprobs=[], prompt_logprobs=[],
        metrics=RequestMetrics(arrival=0.0),
        counts={"forward_passes": 0, **count_tokens([]), "masks": 0, "reencoded": 0},
        ms={"compile": 0.0, "mask_per_step": 0.0, "total": 0.0})
