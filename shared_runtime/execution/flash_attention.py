"""Attention by FlashInfer (Ye et al., arXiv 2501.01005), which reads the paged pool in place; SDPA gathers first.

FlashInfer is asked for by name and may be missing; it has no float32. A page here is one token: the pool's slots.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shared_runtime.attention import LayerAttention
from shared_runtime.errors import ConfigError
from shared_runtime.execution.decode_buckets import Bucket, StaticBatch
from shared_runtime.forward_batch import ForwardBatch, ForwardMode
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool

_WORKSPACE_BYTES = 128 << 20
_HEAD_DIMS = (64, 128, 256)


@dataclass(frozen=True, slots=True)
class PageIndex:
    """Which slots each request of a pass reads, one request behind the other (int32, as FlashInfer takes it).

    Attributes:
        query_ends: [B + 1], request i has the queries from entry i to entry i + 1.
        slot_ends: [B + 1], likewise of `slots`. slots: [sum of seq_lens].
        last_page: [B], tokens on each request's last page: 1.
    """

    query_ends: Tensor
    slot_ends: Tensor
    slots: Tensor
    last_page: Tensor

    @classmethod
    def of(cls, batch: ForwardBatch, tables: ReqToTokenPool, pads: int = 0) -> PageIndex:
        """The index of a pass, and of `pads` rows of padding behind it, which read the scratch slot.

        The ends stay on the host, where FlashInfer plans; the slots are on the device.
        """
        slots = [tables.table[batch.table_rows[i], :n] for i, n in enumerate(batch.seq_lens)]
        slots.append(tables.table.new_zeros(pads))
        return cls(query_ends=_ends([*batch.extend_lens, *[1] * pads]), slot_ends=_ends([*batch.seq_lens, *[1] * pads]),
                   slots=torch.cat(slots).to(torch.int32),
                   last_page=torch.ones(len(batch.seq_lens) + pads, dtype=torch.int32))


def _ends(counts: list[int]) -> Tensor:
    return torch.tensor([0, *counts]).cumsum(0).to(torch.int32)


class FlashAttention:
    """Plans passes for FlashInfer's paged prefill kernel, which serves every pass: one token is a short prefill.

    Args:
        library: the module. pool, tables: the memory. dtype: of queries, keys and values.
        n_heads: query heads of this rank.
    """

    def __init__(self, library: Any, pool: TokenToKVPool, tables: ReqToTokenPool, *, n_heads: int,
                 dtype: torch.dtype) -> None:
        self._tables = tables
        self._pool = pool
        self._dtype = dtype
        self._n_heads = n_heads
        workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=pool.device)
        self._wrapper = library.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")

    def plan(self, batch: ForwardBatch) -> FlashPass:
        """What every layer of this pass needs; valid until the next plan."""
        index = PageIndex.of(batch, self._tables)
        n_kv_heads, head_dim = self._pool.k[0].shape[1:]
        self._wrapper.plan(index.query_ends, index.slot_ends, index.slots, index.last_page, self._n_heads, n_kv_heads,
                           head_dim, 1, causal=True, q_data_type=self._dtype, kv_data_type=self._dtype)
        return FlashPass(self._wrapper, self._pool, batch.out_slots)


class FlashDecode:
    """`StaticAttention` of recorded decode passes: one wrapper a row count, whose buffers stay where they are.

    Args:
        library, pool, tables, n_heads, dtype: as `FlashAttention` takes them.
    """

    def __init__(self, library: Any, pool: TokenToKVPool, tables: ReqToTokenPool, *, n_heads: int,
                 dtype: torch.dtype) -> None:
        self._library = library
        self._tables = tables
        self._pool = pool
        self._dtype = dtype
        self._n_heads = n_heads
        self._workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=pool.device)
        # No pass reads more: a slot may be read by many rows, but each row reads at most a whole table row.
        self._slots = torch.zeros(tables.size * tables.max_len, dtype=torch.int32, device=pool.device)
        self._wrappers: dict[int, Any] = {}

    def prepare(self, batch: ForwardBatch, bucket: Bucket) -> None:
        """Plan the pass: FlashInfer cuts the work among multiprocessors by the lengths, on the host."""
        index = PageIndex.of(batch, self._tables, pads=bucket.rows - len(batch.seq_lens))
        n_kv_heads, head_dim = self._pool.k[0].shape[1:]
        self._wrapper(bucket.rows).plan(
            index.slot_ends, index.slots, index.last_page, self._n_heads, n_kv_heads, head_dim, 1,
            q_data_type=self._dtype, kv_data_type=self._dtype)

    def of(self, static: StaticBatch, bucket: Bucket) -> LayerAttention:
        """The wrapper's run: it reads the buffers that `prepare` has filled."""
        return FlashPass(self._wrapper(bucket.rows), self._pool, static.out_slots[:bucket.rows])

    def _wrapper(self, rows: int) -> Any:
        if rows not in self._wrappers:
            ends = torch.zeros(rows + 1, dtype=torch.int32, device=self._pool.device)
            self._wrappers[rows] = self._library.BatchDecodeWithPagedKVCacheWrapper(
                self._workspace, "NHD", use_cuda_graph=True, paged_kv_indptr_buffer=ends,
                paged_kv_indices_buffer=self._slots, paged_kv_last_page_len_buffer=torch.ones_like(ends[1:]))
        return self._wrappers[rows]


@dataclass(frozen=True, slots=True)
class FlashPass:
    """`LayerAttention` of one pass."""

    wrapper: Any
    pool: TokenToKVPool
    out_slots: Tensor

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As `PassAttention.attend`."""
        self.pool.write(layer, self.out_slots, k, v)
        paged = self.pool.k[layer].unsqueeze(1), self.pool.v[layer].unsqueeze(1)
        out: Tensor = self.wrapper.run(q, paged)
        return out.reshape(q.shape[0], -1)


@dataclass(frozen=True, slots=True)
class FlashKernels:
    """FlashInfer over one memory: for passes as they come, and for recorded ones."""

    eager: FlashAttention
    recorded: FlashDecode

    @classmethod
    def over(cls, library: Any, pool: TokenToKVPool, tables: ReqToTokenPool, *, n_heads: int,
             dtype: torch.dtype) -> FlashKernels:
        """Both, each tried once on the scratch slot: what a release of the library lacks shows here, in no request.

        Raises:
            ConfigError: the library has no kernel for these heads or this device.
        """
        try:
            kernels = cls(FlashAttention(library, pool, tables, n_heads=n_heads, dtype=dtype),
                          FlashDecode(library, pool, tables, n_heads=n_heads, dtype=dtype))
            kernels._try(pool, n_heads, dtype)
        except Exception as error:  # whatever a library throws on a device it was not made for
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(f"FlashInfer cannot serve this model: {type(error).__name__}: {reason}",
                              where="attention", fix="use --attention sdpa") from error
        return kernels

    def _try(self, pool: TokenToKVPool, n_heads: int, dtype: torch.dtype) -> None:
        first = torch.zeros(1, dtype=torch.int64, device=pool.device)
        batch = ForwardBatch(ForwardMode.DECODE, first, first, first, first, [1], [1], first)
        static, bucket = StaticBatch(1, pool.device), Bucket(1, 1)
        self.recorded.prepare(batch, bucket)
        q = torch.ones((1, n_heads, pool.k[0].shape[2]), dtype=dtype, device=pool.device)
        nothing = torch.zeros_like(pool.k[0][:1])
        for attention in (self.eager.plan(batch), self.recorded.of(static, bucket)):
            out = attention.attend(0, q, nothing, nothing)
            if out.shape != (1, q[0].numel()) or bool(out.any()):
                raise RuntimeError(f"attention over one value of zeros gave {out.shape}, largest {out.abs().max()}")


def find_flashinfer(wanted: str, device: torch.device, dtype: torch.dtype, head_dim: int, exact: bool) -> Any | None:
    """The library where it can serve this model, None where SDPA does.

    Args:
        wanted: `sdpa`, `flashinfer`, or `auto`: FlashInfer where it is installed and fits.

    Raises:
        ConfigError: `flashinfer` was asked for by name and cannot serve; says why.
    """
    if wanted == "sdpa":
        return None
    lack = _lack(device, dtype, head_dim, exact)
    if lack is None:
        try:
            return importlib.import_module("flashinfer")
        except ImportError as error:
            lack = f"is not installed here ({error})"
    if wanted == "flashinfer":
        raise ConfigError(f"FlashInfer {lack}", where="attention", fix="use --attention sdpa")
    return None


def _lack(device: torch.device, dtype: torch.dtype, head_dim: int, exact: bool) -> str | None:
    if device.type != "cuda":
        return "needs CUDA"
    if dtype not in (torch.bfloat16, torch.float16):
        return "has no float32"
    if head_dim not in _HEAD_DIMS:
        return f"has heads of {', '.join(map(str, _HEAD_DIMS))}, and not of {head_dim}"
    return "adds in an order of its own, which exact mode cannot have" if exact else None
