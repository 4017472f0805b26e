"""What a time is to be compared with: the machine's bandwidth, and the bytes of weights, keys and values."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from shared_runtime.engine import Engine
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


def timed(body: Callable[[], object], device: torch.device) -> float:
    """Seconds that `body` takes, until the device is done with it."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    body()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started
