"""Decode passes as CUDA graphs: recorded once a shape, then played, so that no kernel waits for the host to launch it.

A one-token pass of a small model is hundreds of kernels of some microseconds, each launched by Python: the launches
take longer than the work. A graph is one launch. It plays exactly the kernels that were recorded, on the same memory:
hence the padded shapes and the fixed places of `decode_buckets`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from shared_runtime.execution.decode_buckets import (
    Bucket,
    StaticAttention,
    StaticBatch,
    bucket_of,
    lengths,
    row_counts,
)
from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.memory_pool import ReqToTokenPool
from shared_runtime.model.decoder import Decoder

Pass = Callable[[], Tensor]
Recorder = Callable[[Pass], Pass]
"""Takes a pass and returns one that does the same, faster, on whatever its input tensors hold then."""


class DecodeGraphs:
    """The decode passes of one decoder over one memory.

    Args:
        decoder: in fast mode; exact mode pads in another way.
        tables: how many requests there can be, and how long. attention: over their memory, which stays where it is.
        record: makes recordings. Tests pass `played_anew`, which runs every pass: all but the recording is then tried
            on any device.

    Attributes:
        played: passes that ran this way.
    """

    def __init__(self, decoder: Decoder, tables: ReqToTokenPool, attention: StaticAttention, record: Recorder) -> None:
        self.played = 0
        self._decoder = decoder
        self._attention = attention
        self._record: Recorder | None = record
        self._rows, self._lengths = row_counts(tables.size), lengths(tables.max_len)
        self._static = StaticBatch(tables.size, decoder.device)
        self._recorded: dict[Bucket, Pass] = {}
        decoder.reserve(tables.max_len)  # a recording reads the rotary table where it is now: it must not grow later

    def run(self, batch: ForwardBatch) -> Tensor | None:
        """[R, width] float32 logits of a plain decode pass; None for any other, which the caller runs itself."""
        bucket = None if self._record is None else bucket_of(batch, self._rows, self._lengths)
        if bucket is None:
            return None
        self._static.fill(batch, bucket.rows)
        self._attention.prepare(batch, bucket)
        played = self._recorded.get(bucket) or self._recording(bucket)
        if played is None:
            return None
        self.played += 1
        # A copy: the next pass is played into the same memory, maybe before these logits have been looked at.
        return played()[:len(batch.seq_lens)].clone()

    def _recording(self, bucket: Bucket) -> Pass | None:
        """A recording for a shape that is new; without one when this device or driver cannot make any."""
        assert self._record is not None
        try:
            self._recorded[bucket] = self._record(lambda: self._pass(bucket))
        except RuntimeError as error:
            self._record = None
            logging.getLogger(__name__).warning("no CUDA graphs from here on: %s", str(error).splitlines()[0])
        return self._recorded.get(bucket)

    def _pass(self, bucket: Bucket) -> Tensor:
        attention = self._attention.of(self._static, bucket)
        return self._decoder.forward(self._static.forward_batch(bucket), attention)


def played_anew(run: Pass) -> Pass:
    """No recording: the pass itself."""
    return run


class CudaRecorder:
    """Records on CUDA; all recordings share one pool of memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Pass) -> Pass:
        """Run twice to let libraries settle, on a stream of its own as recording asks for, then record.

        The runs are real ones: they write the keys and values that the first play writes again.
        """
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no types there
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
            run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            logits = run()

        def play() -> Tensor:
            graph.replay()
            return logits

        return play
