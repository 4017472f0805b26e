"""What a time is to be compared with: the machine's bandwidth, the weights' bytes, and the bare forward pass."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from shared_runtime.engine import Engine
from shared_runtime.forward_batch import ForwardBatch, ForwardMode
from shared_runtime.model.weights import expected_shapes


def memory_bandwidth(device: torch.device, n_bytes: int = 256 << 20) -> float:
    """Bytes a second that a matrix is read with when it is multiplied by one vector; the best of a few.

    That is what a decode pass does with its weights. A copy writes, too, and says less of it.
    """
    columns = 1024
    matrix = torch.ones(n_bytes // 4 // columns, columns, dtype=torch.float32, device=device)
    vector = torch.ones(columns, dtype=torch.float32, device=device)
    return max(n_bytes / timed(lambda: torch.mv(matrix, vector), device) for _ in range(8))


def weight_bytes(engine: Engine) -> int:
    """Bytes that one decode pass reads of weights, as the model's shape gives them."""
    elements = sum(torch.Size(shape).numel() for shape in expected_shapes(engine.parts.model).values())
    return elements * engine.config.torch_dtype.itemsize


def kv_bytes(engine: Engine, tokens: int) -> int:
    """Bytes that one decode pass reads of keys and values, `tokens` being those of all its requests together."""
    model = engine.parts.model
    return 2 * tokens * model.n_layers * model.n_kv_heads * model.head_dim * engine.config.torch_dtype.itemsize


def bare_forward_ms(engine: Engine, batch: int, context: int, repeats: int = 8) -> float:
    """The median of `bare_forward_times`."""
    return statistics.median(bare_forward_times(engine, batch, context, repeats))


def bare_forward_times(engine: Engine, batch: int, context: int, repeats: int = 8) -> list[float]:
    """Milliseconds of decode passes of `batch` requests of `context` tokens each: no loop, no sampling, no grammar.

    The engine must be idle; what its prefix cache held is forgotten.

    Raises:
        ValueError: the engine's memory is too small.
    """
    memory, device = engine.parts.memory, engine.config.torch_device
    memory.cache.reset()
    slots = memory.pool.alloc(batch * context)
    rows = [memory.tables.alloc() for _ in range(batch)]
    found = [row for row in rows if row is not None]
    try:
        if slots is None or len(found) < batch:
            raise ValueError(f"no room for {batch} x {context} tokens")
        for index, row in enumerate(found):
            memory.tables.table[row, :context] = slots[index * context:(index + 1) * context]
        last = torch.arange(batch, device=device)
        forward = ForwardBatch(
            mode=ForwardMode.DECODE, input_ids=torch.full_like(last, 1), positions=torch.full_like(last, context - 1),
            out_slots=slots[context - 1::context].clone(), table_rows=torch.tensor(found, device=device),
            seq_lens=[context] * batch, extend_lens=[1] * batch, logits_index=last)
        times = [timed(lambda: engine.parts.runner.forward(forward), device) for _ in range(repeats + 1)]
        return [1e3 * one for one in times[1:]]  # the first one chooses kernels
    finally:
        if slots is not None:
            memory.pool.free(slots)
        for row in found:
            memory.tables.free(row)


def timed(body: Callable[[], object], device: torch.device) -> float:
    """Seconds that `body` takes, until the device is done with it."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    body()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started
