"""Row 27: the captured graph holds the sampling and has no place for a mask, so a constrained batch cannot use it."""

from __future__ import annotations

from unittest.mock import patch

import torch
from torch import Tensor

from shared_runtime import engine as engine_module
from shared_runtime.engine import Engine
from shared_runtime.execution.event_loop import EventScheduler
from shared_runtime.execution.overlap_loop import DelayedScheduler
from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.model_runner import ModelRunner
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.scheduler import Scheduler
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import ask

SchedulerClass = type[Scheduler]
Passes = list[tuple[str, int, int]]
"""Of each pass: its mode, its tokens, its logits."""


class GraphWithoutAMask(Scheduler):
    """Specimen of `Scheduler`: one pass for a free batch; a constrained one goes through the model row by row."""

    def _forward(self, batch: ScheduleBatch) -> Tensor:
        if not any(row.req.has_grammar for row in batch.rows):
            return super()._forward(batch)
        batch.forward_batch(self._device)  # notes who is sampled
        alone = [ScheduleBatch(batch.mode, [row]) for row in batch.rows]
        return torch.cat([self._runner.forward(one.forward_batch(self._device)) for one in alone])


def passes_of(engine: Engine, bench: Bench, asks: list[Ask]) -> Passes:
    """Run the asks and note what the model is given."""
    seen: Passes = []
    real = ModelRunner.forward

    def forward(self: ModelRunner, batch: ForwardBatch) -> Tensor:
        seen.append((batch.mode.name, int(batch.input_ids.numel()), int(batch.logits_index.numel())))
        return real(self, batch)

    with patch.object(ModelRunner, "forward", forward):
        bench.run(engine, asks)
    return seen


def a_grammar_does_not_change_the_forward_path(scheduler_class: SchedulerClass, bench: Bench) -> None:
    """Two requests of eight tokens, with a regex and without."""
    params = SamplingParams(max_new_tokens=8, ignore_eos=True)
    paths = []
    for asks in ([ask("[0-9]{20}", max_new_tokens=8)] * 2, [Ask("x", sampling=params)] * 2):
        with patch.object(engine_module, "Scheduler", scheduler_class):
            paths.append(passes_of(bench.engine(4), bench, asks))
    bound, free = paths
    hold(bound == free, f"with a grammar the model runs {len(bound)} passes, without one {len(free)}")


def scenario(bench: Bench) -> None:
    """The same with whatever scheduler the engine has."""
    a_grammar_does_not_change_the_forward_path(type(bench.engine(4).scheduler), bench)


EXHIBIT: Exhibit[SchedulerClass] = Exhibit(
    27, GraphWithoutAMask, {"plain": Scheduler, "event": EventScheduler, "delayed": DelayedScheduler},
    a_grammar_does_not_change_the_forward_path,
    "with a grammar the model runs 16 passes, without one 8",
    Injection(engine_module, "Scheduler", GraphWithoutAMask, scenario, "with a grammar the model runs 16 passes"))
