"""Steps 8 and 9 of the loop: what the tokens of a pass make of its requests."""

from __future__ import annotations

import time
from collections.abc import Sequence

from torch import Tensor

from shared_runtime.finisher import Finisher
from shared_runtime.policy import AcceptResult, SampledRow, StagePolicy
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.token_chooser import Support, TokenChooser
from shared_runtime.tracer import Tracer
from shared_runtime.verification import Run


class ResultProcessor:
    """Shows the tokens to the grammars, then gives them to the requests. Keeps nothing of a pass."""

    def __init__(self, policy: StagePolicy, finisher: Finisher, chooser: TokenChooser, tracer: Tracer) -> None:
        self._policy = policy
        self._finisher = finisher
        self._chooser = chooser
        self._tracer = tracer

    # 8
    def accept(self, batch: ScheduleBatch, runs: Sequence[Run]) -> list[AcceptResult]:
        """One result a run.

        Two kinds of token are not shown to the grammar: one that could not be sampled, and an extra stop token of
        the request's own, which ends the text and is no part of it.
        """
        shown = {index: SampledRow(run.req, run.spelled) for index, run in enumerate(runs)
                 if run.req.has_grammar and run.spelled}
        accepted = [AcceptResult(len(run.token_ids), error=run.error) for run in runs]
        if shown:
            for index, result in zip(shown, self._policy.accept(batch, list(shown.values())), strict=True):
                run = runs[index]
                if result.n_accepted < len(run.spelled) or result.error is not None or result.terminated:
                    accepted[index] = result
        self._tracer.phase("accept")
        return accepted

    # 9
    def emit(self, logits: Tensor, support: Support, runs: Sequence[Run], accepted: Sequence[AcceptResult]) -> None:
        """Append the tokens; `logits` are now those that were sampled from, stop tokens settled."""
        now = time.perf_counter()
        for run, result in zip(runs, accepted, strict=True):
            req, metrics = run.req, run.req.metrics
            emitted = self._finisher.emit(req, run.token_ids, result, run.origins)
            run.emitted = len(emitted)
            self._chooser.note_logprobs(run, emitted, logits, support)
            metrics.sampled_tokens += 1
            metrics.drafted_tokens += len(run.draft)
            metrics.accepted_tokens += min(run.matched, len(emitted))
            metrics.emitted_tokens = len(req.output_ids)
            if metrics.first_token is None and emitted:
                metrics.first_token = now
            self._tracer.emitted(req, emitted)
            if run.draft:
                self._tracer.verified(req, run.draft, min(run.matched, len(emitted)))
        self._tracer.event("results_processed")
