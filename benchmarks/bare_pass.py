"""Passes of a model by themselves, ours and that of `transformers`: the same requests again and again, nothing else."""

from __future__ import annotations

import importlib
import statistics
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from benchmarks.denominators import timed
from benchmarks.ledger import NotHereError
from shared_runtime.engine import Engine
from shared_runtime.forward_batch import ForwardBatch, ForwardMode
from shared_runtime.model.locate import locate_model


class BarePass:
    """A pass over requests of equal length on an engine that is idle, with its memory for as long as it is open.

    Every call feeds the same tokens at the same places. What the keys in front of them are makes no difference to the
    time; they are what the memory held.

    Args:
        engine: what its prefix cache held is forgotten.
        batch: requests. context: tokens of each after the pass. fed: tokens of each that the pass feeds.
        scored: of how many of these, the last ones, it computes logits; None for all.

    Raises:
        ValueError: the engine's memory is too small.
    """

    def __init__(self, engine: Engine, batch: int, context: int, fed: int = 1, scored: int | None = None) -> None:
        memory, self._engine, device = engine.parts.memory, engine, engine.config.torch_device
        self._rows: list[int] = []
        memory.cache.reset()
        self._slots = memory.pool.alloc(batch * context)
        if self._slots is None or memory.tables.available < batch:
            self.close()
            raise ValueError(f"no room for {batch} x {context} tokens")
        self._rows = [row for row in (memory.tables.alloc() for _ in range(batch)) if row is not None]
        # Requests that decode together take their slots in turn, so those of one lie scattered.
        own = self._slots.view(context, batch).t() if batch > 1 else self._slots.view(1, context)
        rows, tokens = torch.tensor(self._rows, device=device), torch.arange(batch * fed, device=device)
        memory.tables.table[rows, :context] = own
        self._batch = ForwardBatch(
            mode=ForwardMode.DECODE if fed == 1 else ForwardMode.EXTEND, input_ids=tokens + 100,
            positions=torch.arange(context - fed, context, device=device).repeat(batch),
            out_slots=own[:, context - fed:].flatten(), table_rows=rows, seq_lens=[context] * batch,
            extend_lens=[fed] * batch, logits_index=tokens.view(batch, fed)[:, fed - (scored or fed):].flatten())

    def __call__(self) -> Tensor:
        """[batch * scored, width] float32 logits."""
        return self._engine.parts.runner.forward(self._batch)

    def close(self) -> None:
        """Give the memory back."""
        memory = self._engine.parts.memory
        if self._slots is not None:
            memory.pool.free(self._slots)
        for row in self._rows:
            memory.tables.free(row)
        self._slots, self._rows = None, []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def bare_forward_ms(engine: Engine, batch: int, context: int, repeats: int = 8) -> float:
    """The median of `bare_forward_times`."""
    return statistics.median(bare_forward_times(engine, batch, context, repeats))


def bare_forward_times(engine: Engine, batch: int, context: int, repeats: int = 8) -> list[float]:
    """Milliseconds of decode passes, each request with `context` tokens: no loop, no sampling, no grammar.

    Raises:
        ValueError: as `BarePass`.
    """
    with BarePass(engine, batch, context) as one:
        times = [timed(one, engine.config.torch_device) for _ in range(repeats + 1)]
    return [1e3 * one for one in times[1:]]  # the first one chooses kernels


class TransformersPass:
    """The same by `transformers`: one token for each request behind a cache of the rest, its own default attention.

    Args:
        model: of `transformers_model`. batch, context: as `BarePass` takes them.
    """

    def __init__(self, model: Any, batch: int, context: int) -> None:
        self._model, self._length = model, context - 1
        self._cache: Any = importlib.import_module("transformers").DynamicCache()
        ids = torch.randint(100, 1000, (batch, self._length), generator=torch.Generator().manual_seed(0))
        with torch.inference_mode():
            model(input_ids=ids, cache=self._cache, use_cache=True, logits_to_keep=1)
        self._ids = torch.arange(batch).view(batch, 1) + 100
        self._positions = torch.full((batch, 1), self._length)

    def __call__(self) -> Tensor:
        """[batch, width] logits in the model's dtype; the cache is one token longer until `rewind`."""
        with torch.inference_mode():
            logits: Tensor = self._model(input_ids=self._ids, cache=self._cache, use_cache=True,
                                         position_ids=self._positions).logits[:, -1]
        return logits

    def rewind(self) -> None:
        """Take the newest token out of the cache again, which is no part of the pass."""
        self._cache.crop(-1)


def transformers_model(model: str, dtype: torch.dtype) -> Any:
    """A model as `transformers` loads it, for a CPU.

    Raises:
        NotHereError: it is not installed, or has no such model.
    """
    try:
        library: Any = importlib.import_module("transformers")
        importlib.import_module("transformers.utils.logging").disable_progress_bar()
        return library.AutoModelForCausalLM.from_pretrained(str(locate_model(model)), dtype=dtype).eval()
    except (ImportError, OSError, ValueError) as error:
        raise NotHereError(f"transformers cannot load the model: {error}") from error
