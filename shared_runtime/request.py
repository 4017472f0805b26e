"""One request: what was asked, what has come out, and where its keys and values lie."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from shared_runtime.constraint import Constraint
from shared_runtime.errors import JumpforwardError
from shared_runtime.metrics import RequestMetrics
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.trace import TokenOrigin

if TYPE_CHECKING:
    from shared_runtime.detokenizer import IncrementalDetokenizer
    from shared_runtime.prefix_cache import PrefixNode

FinishKind = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class FinishReason:
    """Why a request ended.

    Attributes:
        kind: `stop` (stop token, stop string, or the grammar's end), `length`, `abort` or `error`.
        matched: the stop string or stop token id that ended it, None otherwise.
        error: what went wrong, for `error`.
    """

    kind: FinishKind
    matched: str | int | None = None
    error: JumpforwardError | None = None


@dataclass(slots=True)
class TokenLogprobs:
    """Log-probabilities at one position.

    Attributes:
        token_id: the token that stands there.
        logprob: under the raw model distribution.
        masked_logprob: under the distribution the constraint left (equal to `logprob` for a free request).
        top: best alternatives under the raw distribution, (id, logprob), best first.
    """

    token_id: int
    logprob: float
    masked_logprob: float
    top: list[tuple[int, float]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Request:
    """One answer in the making. Fields are grouped by who fills them.

    Attributes:
        rid: unique id. prompt_ids, prompt: what was asked. sampling, constraint: how.
        output_ids, origins: the answer so far, and how each token came; always of equal length.
        unsent: text that is safe to show and has not been streamed yet.
        grammar: the stage's own state for this request; nobody else looks inside.
        ending: how the request ends once its last tokens have their log-probabilities; None while it goes on.
        table_row: row of `ReqToTokenPool`, None while the request is in no batch.
        kv_len: tokens whose keys and values are computed; they lie in `table[table_row, :kv_len]`.
        prefix_len: how many of them belong to the prefix cache (the rest are this request's own).
        last_node: the cache node the prefix ends at; locked while the request runs.
        priority: newest is largest; the largest is retracted first.
    """

    # by the engine
    rid: str
    prompt_ids: list[int]
    prompt: str
    sampling: SamplingParams
    seed: int
    constraint: Constraint | None = None
    priority: int = 0
    detokenizer: IncrementalDetokenizer | None = None
    metrics: RequestMetrics = field(default_factory=lambda: RequestMetrics(arrival=time.perf_counter()))

    # by the scheduler
    output_ids: list[int] = field(default_factory=list)
    origins: list[TokenOrigin] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    finish: FinishReason | None = None
    unsent: str = ""
    ending: FinishReason | None = None

    # by the stage's policy
    grammar: object | None = None

    # by the caches, through the scheduler
    table_row: int | None = None
    kv_len: int = 0
    prefix_len: int = 0
    last_node: PrefixNode | None = None

    @property
    def all_ids(self) -> list[int]:
        """Prompt and output, in order: what the KV pool holds a prefix of."""
        return self.prompt_ids + self.output_ids

    @property
    def total_len(self) -> int:
        """Number of tokens of prompt and output."""
        return len(self.prompt_ids) + len(self.output_ids)

    @property
    def unscored_from(self) -> int | None:
        """Position of the first token that stands without the log-probability that was asked for.

        None when nothing is missing. The prompt's own come first; then output that no pass was spent on.
        """
        if self.sampling.prompt_logprobs and len(self.prompt_logprobs) < len(self.prompt_ids) - 1:
            return 1
        if self.sampling.wants_logprobs and len(self.logprobs) < len(self.output_ids):
            return len(self.prompt_ids) + len(self.logprobs)
        return None

    @property
    def text(self) -> str:
        """The answer so far as text, without what a stop string or a half character still holds back."""
        return "" if self.detokenizer is None else self.detokenizer.text

    @property
    def finished(self) -> bool:
        """True once a finish reason is set."""
        return self.finish is not None

    @property
    def has_grammar(self) -> bool:
        """True for a constrained request."""
        return self.constraint is not None
