"""Drives a ModelRunner without a scheduler: the tests say which tokens of which sequence go into which pass."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from shared_runtime.forward_batch import ForwardBatch, ForwardMode
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.decoder import Decoder
from shared_runtime.model_runner import ModelRunner


class ModelDriver:
    """Sequences by name, each with its row of the page table."""

    def __init__(self, config: ModelConfig, decoder: Decoder, *, slots: int = 2048, rows: int = 32,
                 shuffle_seed: int | None = None) -> None:
        """Make the pools; with `shuffle_seed` the KV slots are handed out in a random order."""
        kv_pool = TokenToKVPool(size=slots, n_layers=config.n_layers, n_kv_heads=config.n_kv_heads,
                                head_dim=config.head_dim, dtype=decoder.dtype, device=decoder.device)
        table = ReqToTokenPool(size=rows, max_len=config.context_length, device=decoder.device)
        self.runner = ModelRunner(config, decoder, kv_pool, table)
        self._rows: dict[str, int] = {}
        self._lengths: dict[str, int] = {}
        if shuffle_seed is not None:
            taken = kv_pool.alloc(slots)
            assert taken is not None
            order = list(range(slots))
            random.Random(shuffle_seed).shuffle(order)
            kv_pool.free(taken[order])

    def feed(self, tokens: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
        """Run one pass over the next tokens of some sequences.

        Returns:
            per sequence, the logits of each of its tokens in this pass: [n, width].
        """
        ids: list[int] = []
        positions: list[int] = []
        slots: list[Tensor] = []
        for name, new in tokens.items():
            done = self._lengths.setdefault(name, 0)
            slots.append(self._extend(name, done, len(new)))
            ids += new
            positions += range(done, done + len(new))
            self._lengths[name] = done + len(new)
        counts = [len(new) for new in tokens.values()]
        logits = self.runner.forward(ForwardBatch(
            mode=ForwardMode.DECODE if max(counts) == 1 else ForwardMode.EXTEND,
            input_ids=torch.tensor(ids),
            positions=torch.tensor(positions),
            out_slots=torch.cat(slots),
            table_rows=torch.tensor([self._rows[name] for name in tokens]),
            seq_lens=[self._lengths[name] for name in tokens],
            extend_lens=counts,
            logits_index=torch.arange(len(ids)),
        ))
        ends = list(itertools.accumulate(counts))
        return {name: logits[end - count : end]
                for name, count, end in zip(tokens, counts, ends, strict=True)}

    def share_prefix(self, source: str, name: str, length: int) -> None:
        """Start a sequence on the first `length` slots of another, as a prefix cache does."""
        row = self._open(name)
        table = self.runner.req_to_token.table
        table[row, :length] = table[self._rows[source], :length]
        self._lengths[name] = length

    def close(self, name: str) -> None:
        """Forget a sequence and free its slots."""
        row = self._rows.pop(name)
        self.runner.kv_pool.free(self.runner.req_to_token.table[row, : self._lengths.pop(name)])
        self.runner.req_to_token.free(row)

    def _extend(self, name: str, done: int, count: int) -> Tensor:
        row = self._rows[name] if name in self._rows else self._open(name)
        slots = self.runner.kv_pool.alloc(count)
        assert slots is not None, "the test's pool is too small"
        self.runner.req_to_token.table[row, done : done + count] = slots
        return slots

    def _open(self, name: str) -> int:
        row = self.runner.req_to_token.alloc()
        assert row is not None, "the test's table is too small"
        self._rows[name] = row
        return row
