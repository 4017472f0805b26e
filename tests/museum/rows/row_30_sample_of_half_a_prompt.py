"""Row 30: the sample behind a middle chunk of a prompt goes into the grammar."""

from __future__ import annotations

from shared_runtime import scheduler
from shared_runtime.batch_builder import BatchBuilder
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.finisher import Finisher
from shared_runtime.queues import Queues
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.tracer import NullTracer
from shared_runtime.waiting_queue import WaitingQueue
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, memory, request, unbroken
from tests.museum.exhibit import Exhibit, Injection


class EveryChunkSamples(BatchBuilder):
    """Specimen of `BatchBuilder`: each row of a prefill gets a token, also in the middle of its prompt."""

    def next_batch(self) -> ScheduleBatch | None:
        """The batch of this turn."""
        batch = super().next_batch()
        for row in batch.rows if batch is not None else []:
            row.samples = True
        return batch


def only_the_last_chunk_gets_a_token(builder_class: type[BatchBuilder], bench: Bench) -> None:
    """A prompt of eight tokens in chunks of three."""
    queues, kv = Queues(WaitingQueue("fcfs")), memory()
    config = EngineConfig(chunked_prefill_size=3)
    builder = builder_class(config, kv, queues, CopiedFSMPolicy(bench.context()),
                            Finisher(bench.context().vocabulary), NullTracer())
    req = request(prompt_ids=range(10, 18), sampling=SamplingParams(max_new_tokens=4))
    queues.waiting.append(req)
    samples = 0
    for chunk in range(3):
        batch = builder.next_batch()
        assert batch is not None, f"chunk {chunk} was not fed"
        samples += sum(row.samples for row in batch.rows)
        req.kv_len = batch.rows[0].end
    hold(samples == 1, f"{samples} samples of one prompt go into the grammar")


def scenario(bench: Bench) -> None:
    """A constrained request with a prompt of two chunks: one pass gives no token."""
    with unbroken("the grammar got the sample of a middle chunk"):
        result = bench.run(bench.engine(1, chunked_prefill_size=3), [Ask("abcdefgh", Constraint.regex("[0-9]{4}"))])[0]
    hold(result.metrics.forward_passes == result.metrics.sampled_tokens + 1,
         "the grammar got the sample of a middle chunk")


EXHIBIT: Exhibit[type[BatchBuilder]] = Exhibit(
    30, EveryChunkSamples, {"runtime": BatchBuilder}, only_the_last_chunk_gets_a_token, "3 samples of one prompt",
    Injection(scheduler, "BatchBuilder", EveryChunkSamples, scenario, "sample of a middle chunk"))
