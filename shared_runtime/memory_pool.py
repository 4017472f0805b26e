"""Where keys and values live: a pool of token slots, and a table that says which slots a request holds.

Both pools keep their books on the host (which slots are free), whatever device the tensors are on. Neither
knows what a request or a prefix is: who owns an allocated slot is the business of the caches and the
scheduler, and `integrity.check_integrity` adds the two sides up.
"""

from __future__ import annotations

import math
import os

import numpy as np
import torch
from torch import Tensor

from shared_runtime.errors import ConfigError, IntegrityError
from shared_runtime.transfer import moved


class TokenToKVPool:
    """Keys and values of up to `size` tokens, one slot a token in every layer.

    Slot ids are 1..size. Slot 0 is scratch: padded places of a page table point at it, it is never handed
    out, and nothing in it is ever attended to. The pool starts as zeros because a masked place still enters a
    product (0 * NaN is NaN).

    Attributes:
        size: slots that can be handed out.
        k: per layer [size + 1, n_kv_heads, head_dim].
        v: as `k`.
    """

    def __init__(self, *, size: int, n_layers: int, n_kv_heads: int, head_dim: int, dtype: torch.dtype,
                 device: torch.device) -> None:
        """Allocate the pool.

        Raises:
            ConfigError: size is below 1, or the device has not got the memory.
        """
        if size < 1:
            raise ConfigError(f"the KV pool needs at least 1 slot, not {size}", where="kv pool size")
        self.size = size
        self.device = device
        shape = (size + 1, n_kv_heads, head_dim)
        n_bytes = 2 * n_layers * math.prod(shape) * dtype.itemsize
        refusal = ConfigError(
            f"no memory on {device} for a KV pool of {size} tokens ({n_bytes / 2**20:.0f} MiB)",
            where="kv pool size", fix="ask for fewer tokens")
        # A CPU pool takes its memory only when it is written to: too large a one would be killed in mid-request.
        if device.type == "cpu" and n_bytes > _physical_memory():
            raise refusal
        try:
            self.k = [_zeros(shape, dtype, device) for _ in range(n_layers)]
            self.v = [_zeros(shape, dtype, device) for _ in range(n_layers)]
        except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
            raise refusal from error
        self._slots = _FreeList(first=1, count=size, noun="KV slot")

    @property
    def available(self) -> int:
        """Slots that `alloc` can hand out now."""
        return self._slots.available

    def alloc(self, n: int) -> Tensor | None:
        """Take `n` slots.

        Returns:
            [n] int64 slot ids on the pool's device, or None, with nothing taken, when fewer are free.
        """
        taken = self._slots.take(n)
        return None if taken is None else moved(taken, self.device)

    def free(self, slots: Tensor) -> None:
        """Give slots back; [n] int64, any device, any order.

        Raises:
            IntegrityError: a slot is out of range, is free already, or is named twice. Nothing is freed then.
        """
        self._slots.give(slots.cpu())

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Store the keys and values of n tokens in one layer.

        Args:
            layer: layer index.
            slots: [n] int64.
            k: [n, n_kv_heads, head_dim].
            v: as `k`.
        """
        self.k[layer].index_copy_(0, slots, k)
        self.v[layer].index_copy_(0, slots, v)

    def clear(self) -> None:
        """Every slot is free, whoever had it."""
        self._slots.clear()

    def free_slots(self) -> list[int]:
        """Every free slot id in ascending order, for the integrity check."""
        return self._slots.listed()


def _physical_memory() -> float:
    """Bytes of main memory; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that on a CPU cost no time and no memory until they are written.

    NumPy asks the system for zero pages (calloc); `torch.zeros` writes every one of them.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    n_bytes = math.prod(shape) * dtype.itemsize
    return torch.from_numpy(np.zeros(n_bytes, dtype=np.uint8)).view(dtype).view(shape)


class ReqToTokenPool:
    """Which KV slot holds position p of request row r.

    Attributes:
        size: rows, that is requests that can run at once.
        max_len: positions a row has.
        table: [size, max_len] int64 slot ids; places never written, or past a request's length, mean nothing,
            but they always hold the id of some slot, so that gathering them is safe.
    """

    def __init__(self, *, size: int, max_len: int, device: torch.device) -> None:
        """Allocate the table.

        Raises:
            ConfigError: size or max_len is below 1.
        """
        if size < 1 or max_len < 1:
            raise ConfigError(f"a request table of {size} rows x {max_len} positions cannot hold a request",
                              where="max_running_requests")
        self.size = size
        self.max_len = max_len
        self.table = torch.zeros((size, max_len), dtype=torch.int64, device=device)
        self._rows = _FreeList(first=0, count=size, noun="request row")

    @property
    def available(self) -> int:
        """Rows that `alloc` can hand out now."""
        return self._rows.available

    def alloc(self) -> int | None:
        """Take a row; None when all are taken. Its old contents are left as they are."""
        taken = self._rows.take(1)
        return None if taken is None else int(taken.item())

    def free(self, row: int) -> None:
        """Give a row back.

        Raises:
            IntegrityError: the row is out of range or free already.
        """
        self._rows.give(torch.tensor([row], dtype=torch.int64))

    def clear(self) -> None:
        """Every row is free, whoever had it."""
        self._rows.clear()

    def free_rows(self) -> list[int]:
        """Every free row in ascending order, for the integrity check."""
        return self._rows.listed()


class _FreeList:
    """Ids first..first+count-1, free or taken: a stack for speed, a flag an id to catch a double free."""

    def __init__(self, *, first: int, count: int, noun: str) -> None:
        self._first = first
        self._count = count
        self._noun = noun
        self._stack = torch.empty(count, dtype=torch.int64)
        self._is_free = torch.empty(count, dtype=torch.bool)
        self.clear()

    def clear(self) -> None:
        """All of them are free."""
        # In place: tensors made inside a pass, in inference mode, could not be written to outside.
        # The stack's top is its end: the lowest ids come out first, and what was freed last is reused first.
        torch.arange(self._first + self._count - 1, self._first - 1, -1, out=self._stack)
        self._is_free.fill_(True)
        self.available = self._count

    def take(self, n: int) -> Tensor | None:
        if n < 0:
            raise ValueError(f"cannot take {n} ids")
        if n > self.available:
            return None
        taken = self._stack[self.available - n : self.available].flip(0)
        self._is_free[taken - self._first] = False
        self.available -= n
        return taken

    def give(self, ids: Tensor) -> None:
        places = ids.to(torch.int64).flatten() - self._first
        self._check(places)
        n = places.numel()
        self._is_free[places] = True
        self._stack[self.available : self.available + n] = places.flip(0) + self._first
        self.available += n
        if self.available == self._count:
            self.clear()  # in order again: the next request's ids lie side by side, which attention reads in place

    def listed(self) -> list[int]:
        ids: list[int] = self._stack[: self.available].sort().values.tolist()
        return ids

    def _check(self, places: Tensor) -> None:
        outside = (places < 0) | (places >= self._count)
        if bool(outside.any()):
            self._refuse("is out of range", places[outside])
        free_already = self._is_free[places]
        if bool(free_already.any()):
            self._refuse("is free already", places[free_already])
        unique, counts = torch.unique(places, return_counts=True)
        if unique.numel() != places.numel():
            self._refuse("is named twice in one call", unique[counts > 1])

    def _refuse(self, what: str, places: Tensor) -> None:
        ids = (places + self._first)[:8].tolist()
        raise IntegrityError(f"{self._noun} {ids} cannot be freed: it {what}")
