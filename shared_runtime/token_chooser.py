"""Steps 6 and 7 of the loop: from a pass's logits to the tokens of each request, and what the model thought of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from shared_runtime.config import EngineConfig
from shared_runtime.execution.rank_group import RankGroup
from shared_runtime.filled_mask import FilledMask, FillsAhead
from shared_runtime.logprobs import raw_logprobs, sampled_logprobs
from shared_runtime.policy import StagePolicy
from shared_runtime.sampler import SampleOutput, Sampler
from shared_runtime.sampling_info import SamplingInfo
from shared_runtime.schedule_batch import ScheduleBatch, ScoredRows
from shared_runtime.tracer import Tracer
from shared_runtime.verification import Run, verify
from shared_runtime.vocabulary import Vocabulary

T = TypeVar("T")


@dataclass(slots=True)
class Preparation:
    """The part of step 6 that needs no logits.

    Attributes:
        info: how to choose. keeps_raw: whether somebody wants to see the logits as they were.
        mask: filled already; None when the stage fills and applies it in one.
    """

    info: SamplingInfo
    keeps_raw: bool
    mask: FilledMask | None = None


@dataclass(slots=True)
class Support:
    """What step 6 hands on: how to choose, the raw logits where somebody wants to see them, the rows of a grammar."""

    info: SamplingInfo
    raw: Tensor | None
    filled: list[int]


class TokenChooser:
    """Asks the stage for its mask, samples under it, and agrees with the other ranks. Keeps nothing of a pass."""

    def __init__(self, config: EngineConfig, vocabulary: Vocabulary, policy: StagePolicy, tracer: Tracer,
                 ranks: RankGroup) -> None:
        self._device = config.torch_device
        self._vocabulary = vocabulary
        self._policy = policy
        self._tracer = tracer
        self._ranks = ranks
        self._syncs_ids = config.sync_token_ids and ranks.size > 1
        self._sampler = Sampler(vocabulary)

    def score(self, rows: ScoredRows, logits: Tensor) -> None:
        """Log-probabilities of tokens that no pass has chosen: the prompt's, and what a stage wrote itself."""
        req, prompt = rows.req, len(rows.req.prompt_ids)
        ids = req.all_ids[rows.position:rows.position + rows.last - rows.first]
        scores = raw_logprobs(logits[:, :len(self._vocabulary)], ids, req.sampling.top_logprobs)
        in_prompt = max(0, prompt - rows.position)
        if req.sampling.prompt_logprobs and in_prompt:
            del req.prompt_logprobs[rows.position - 1:]  # a prefill that was retracted begins again
            req.prompt_logprobs += scores[:in_prompt]
        if req.sampling.wants_logprobs and len(scores) > in_prompt:
            del req.logprobs[max(0, rows.position - prompt):]
            req.logprobs += scores[in_prompt:]

    def prepare(self, batch: ScheduleBatch, stage: FillsAhead | None = None) -> Preparation:
        """Look up how to choose for each row and, where a `stage` can, fill the mask before the logits are there."""
        keeps_raw = self._tracer.wants_logits or any(req.sampling.wants_logprobs for req in batch.sampled)
        info = SamplingInfo.from_requests(batch.sampled, self._vocabulary, self._device, batch.ahead)
        if stage is None:
            return Preparation(info, keeps_raw)
        mask = FilledMask([])
        if batch.has_grammar:
            fill = stage.fill_mask
            mask = _timed(batch, lambda: fill(batch, batch.positions), lambda mask: mask.rows)
        return Preparation(info, keeps_raw, mask)

    def constrain(self, logits: Tensor, batch: ScheduleBatch, preparation: Preparation | None = None) -> Support:
        """Rewrite the sampling support in place: bias and penalties first, the grammar's mask last."""
        support = self.restrict(logits, batch, preparation or self.prepare(batch))
        self._tracer.masked(batch, support.raw, logits, support.filled)
        return support

    def restrict(self, logits: Tensor, batch: ScheduleBatch, preparation: Preparation) -> Support:
        """`constrain` without a word to the tracer: on any thread, if the mask is filled."""
        raw = logits.clone() if preparation.keeps_raw else None
        self._sampler.adjust(logits, preparation.info)
        filled: list[int] = []
        if preparation.mask is not None:
            preparation.mask.apply(logits)
            filled = preparation.mask.rows
        elif batch.has_grammar:
            filled = _timed(batch, lambda: self._policy.constrain(logits, batch, batch.positions), lambda rows: rows)
        return Support(preparation.info, raw, filled)

    def sample(self, logits: Tensor, batch: ScheduleBatch, support: Support) -> list[Run]:
        """One token a row; then, per request, how far its draft was right."""
        return self.runs(batch, self.choose(logits, batch, support))

    def choose(self, logits: Tensor, batch: ScheduleBatch, support: Support) -> SampleOutput:
        """One token a row, the same on all ranks; on any thread."""
        output = self._sampler.sample(logits, support.info)
        if self._agrees_on_ids_of(batch):
            self._agree_on_ids(output)
        return output

    def runs(self, batch: ScheduleBatch, output: SampleOutput) -> list[Run]:
        """Per request, how far its draft was right."""
        if self._agrees_on_ids_of(batch):
            self._tracer.synced()
        runs = verify(batch, output, self._vocabulary.stop_ids)
        for run in runs:
            for row in range(run.first_row, run.first_row + len(run.token_ids)):  # what lies behind was never said
                text = output.warnings.get(row)
                if text is not None and text not in run.req.warnings:
                    run.req.warnings.append(text)
        return runs

    def _agrees_on_ids_of(self, batch: ScheduleBatch) -> bool:
        return batch.has_grammar and self._syncs_ids

    def _agree_on_ids(self, output: SampleOutput) -> None:
        """All ranks take the lowest of their ids.

        A grammar that has accepted another token masks other tokens from then on, and a rank that ends a request
        earlier makes other collective calls: one rounding difference would part the ranks for good.
        """
        output.token_ids[:] = self._ranks.lowest(output.token_ids)
        for row, token_id in enumerate(output.token_ids):
            if token_id < 0 and row not in output.errors:
                output.errors[row] = "another rank could not sample a token"

    def note_logprobs(self, run: Run, emitted: Sequence[int], logits: Tensor, support: Support) -> None:
        """Log-probabilities of a run's tokens, where its request wants them.

        Args:
            run: where its rows are. emitted: the tokens that are in the output now.
            logits: [rows, width] that were sampled from: masked, stop tokens settled. support: has the raw ones.
        """
        if support.raw is not None and run.req.sampling.wants_logprobs:
            rows = slice(run.first_row, run.first_row + len(emitted))
            run.req.logprobs += sampled_logprobs(support.raw[rows, :len(self._vocabulary)], logits[rows],
                                                 list(emitted), run.req.sampling.top_logprobs)


def _timed(batch: ScheduleBatch, work: Callable[[], T], rows: Callable[[T], list[int]]) -> T:
    """Do the work of masks, and book its time in equal shares to the requests whose rows it filled."""
    started = time.perf_counter()
    result = work()
    filled = rows(result)
    share = (time.perf_counter() - started) / max(1, len(filled))
    for row in filled:
        batch.sampled[row].metrics.masks += 1
        batch.sampled[row].metrics.mask_s += share
    return result
