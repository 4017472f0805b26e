"""Stage 5 beside `transformers.generate`, the same weights, dtype and threads: free answers, and the nine requests."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from benchmarks.denominators import timed
from benchmarks.ledger import Interval
from benchmarks.paired import OverheadRow, Paired, Seconds, seconds_of
from benchmarks.peer_transformers import HFModel, TransformersLoop
from benchmarks.serving import Run, serve, serve_free
from benchmarks.workloads import Question, Workload
from shared_runtime.model.locate import locate_model
from shared_runtime.policy import BackendJump

GENERATE_AIMS = {1: 1.4, 16: 2.2}
TRIAL_AIMS: dict[BackendJump, float | None] = {"none": None, "draft": 2.7, "force": 3.6, "force+draft": 3.9}

FREE_TOKENS = 32
"""Of an answer, where there is one request."""

LONGEST = 256
"""Tokens of the longest of several answers; of sixteen the shortest has a sixteenth of it, the next two, and so on."""

_CPU = torch.device("cpu")


class BesideTransformers(Paired):
    """Measures `transformers` by stage 5: above 1 ours is faster.

    Raises:
        NotHereError: `transformers` is missing, or xgrammar where it is asked for.
    """

    def generate(self, batches: Sequence[int]) -> Iterator[OverheadRow]:
        """Without a constraint: one request, or several whose prompts and answers differ in length.

        `generate` holds its batch together until the longest answer is there; here each request leaves when it is done.
        """
        peer = TransformersLoop(self._model(), None)
        with self.engine(5, "xgrammar") as engine:
            for batch in batches:
                questions = self._questions(batch)
                lengths = [FREE_TOKENS] if batch == 1 else [LONGEST * (row + 1) // batch for row in range(batch)]
                workload = Workload("free", "", "", questions, max(lengths), (batch,), ())
                sides = [partial(timed, partial(peer.answer, questions, max(lengths), least=max(lengths)), _CPU),
                         partial(_free_seconds, partial(serve_free, engine, workload, batch, lengths))]
                sides[0](), sides[1]()
                what = "free" if batch == 1 else f"free, answers of {min(lengths)} to {max(lengths)} tokens"
                yield self.row("generate", f"transformers by stage 5, {what}", batch, sides[0], sides[1],
                               GENERATE_AIMS.get(batch))

    def trial(self) -> Iterator[OverheadRow]:
        """`transformers` with xgrammar by each mode of stage 5: the geometric mean over the nine requests."""
        whole = self.workloads["nine_requests"]
        peer = TransformersLoop(self._model(), "xgrammar")
        for constraint in {one.constraint for one in whole.questions}:
            if constraint is not None:
                peer.prepare(constraint)
        engines = {mode: self.engine(5, "xgrammar", jump=mode) for mode in TRIAL_AIMS}
        ours: dict[str, list[list[float]]] = {mode: [] for mode in engines}
        theirs: list[list[float]] = []
        warm = replace(whole, max_new_tokens=2)
        for engine in engines.values():
            serve(engine, warm, 1)  # compiles, and chooses kernels
        peer.answer(whole.questions[:1], 2)
        for turn in range(self.pairs):
            seconds: dict[str, list[float]] = {mode: [] for mode in engines}
            other: list[float] = []
            for question in whole.questions:
                one = replace(whole, questions=(question,))
                sides: list[tuple[list[float], Seconds]] = [
                    (seconds[mode], partial(seconds_of, engine, one, 1)) for mode, engine in engines.items()]
                sides.append((other, partial(timed, partial(peer.answer, [question], whole.max_new_tokens), _CPU)))
                for found, side in sides if turn % 2 else sides[::-1]:
                    found.append(side())
            theirs.append(other)
            for mode, found in seconds.items():
                ours[mode].append(found)
        for mode, engine in engines.items():
            engine.close()
            ratios = [statistics.geometric_mean([t / o for t, o in zip(there, here, strict=True)])
                      for there, here in zip(theirs, ours[mode], strict=True)]
            yield OverheadRow("trial", f"transformers + xgrammar by 5+{mode}", self.config.dtype,
                              self.config.thread_count, 1, _middle_ms(ours[mode]), _middle_ms(theirs),
                              Interval.of(ratios), TRIAL_AIMS[mode], self.clock)

    def _model(self) -> HFModel:
        return HFModel(str(locate_model(self.config.model)), self.config.dtype, _CPU)

    def _questions(self, count: int) -> tuple[Question, ...]:
        """The shortest prompts of all workloads, each once."""
        prompts = {one.prompt for workload in self.workloads.values() for one in workload.questions}
        return tuple(Question(prompt, None) for prompt in sorted(prompts, key=lambda one: (len(one), one))[:count])


def _middle_ms(runs: Sequence[Sequence[float]]) -> float:
    return round(1e3 * statistics.median(map(sum, runs)) / len(runs[0]), 3)


def _free_seconds(run: Callable[[], Run]) -> float:
    return run().seconds
