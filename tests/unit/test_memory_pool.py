"""The pools hand out each slot and row to one owner at a time, and notice when they are given back wrongly."""

from __future__ import annotations

import mmap
import random
from pathlib import Path

import pytest
import torch

from shared_runtime.errors import ConfigError, IntegrityError
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool

CPU = torch.device("cpu")
STATM = Path("/proc/self/statm")


def kv_pool(size: int = 8, *, dtype: torch.dtype = torch.float32) -> TokenToKVPool:
    return TokenToKVPool(size=size, n_layers=2, n_kv_heads=3, head_dim=4, dtype=dtype, device=CPU)


def test_every_slot_but_scratch_is_handed_out_once() -> None:
    pool = kv_pool(8)
    first, second = pool.alloc(5), pool.alloc(3)
    assert first is not None
    assert second is not None
    assert first.dtype == torch.int64
    assert sorted([*first.tolist(), *second.tolist()]) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert pool.available == 0
    assert pool.free_slots() == []


def test_a_pool_that_is_short_hands_out_nothing_and_keeps_what_it_has() -> None:
    pool = kv_pool(8)
    assert pool.alloc(9) is None
    assert pool.available == 8
    assert pool.alloc(8) is not None
    assert pool.alloc(1) is None


def test_allocating_no_slots_is_allowed_and_takes_none() -> None:
    pool = kv_pool(2)
    none = pool.alloc(0)
    assert none is not None
    assert none.shape == (0,)
    pool.free(none)
    assert pool.available == 2


def test_freed_slots_come_back_in_any_order() -> None:
    pool = kv_pool(8)
    taken = pool.alloc(8)
    assert taken is not None
    pool.free(taken[torch.tensor([3, 0, 5])])
    assert pool.free_slots() == sorted(taken[torch.tensor([0, 3, 5])].tolist())
    again = pool.alloc(3)
    assert again is not None
    assert sorted(again.tolist()) == sorted(taken[torch.tensor([0, 3, 5])].tolist())


def test_when_everything_is_free_slots_come_side_by_side_again() -> None:
    pool = kv_pool(8)
    taken = pool.alloc(8)
    assert taken is not None
    with torch.inference_mode():  # as a pass frees them
        for one in (3, 0, 7, 5, 1, 2, 6, 4):
            pool.free(taken[one:one + 1])
    again = pool.alloc(8)
    assert again is not None
    assert again.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("slots", "said"), [
    ([0], "out of range"), ([9], "out of range"), ([-1], "out of range"),
    ([6], "free already"), ([1, 2, 1], "twice"),
])
def test_freeing_what_is_not_taken_is_an_error_that_changes_nothing(slots: list[int], said: str) -> None:
    pool = kv_pool(8)
    taken = pool.alloc(4)
    assert taken is not None
    assert taken.tolist() == [1, 2, 3, 4]
    with pytest.raises(IntegrityError, match=said):
        pool.free(torch.tensor([3, *slots]))
    assert pool.free_slots() == [5, 6, 7, 8]
    pool.free(taken)
    assert pool.available == 8


def test_a_long_random_life_loses_and_doubles_nothing() -> None:
    source = random.Random(0)
    pool = kv_pool(50)
    held: list[int] = []
    for _ in range(500):
        if source.random() < 0.5:
            got = pool.alloc(source.randrange(1, 12))
            held += [] if got is None else got.tolist()
        elif held:
            source.shuffle(held)
            count = source.randrange(1, len(held) + 1)
            pool.free(torch.tensor(held[:count]))
            del held[:count]
        assert sorted(held + pool.free_slots()) == list(range(1, 51))
        assert pool.available == 50 - len(held)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_written_to_a_layer_is_read_there_and_nowhere_else(dtype: torch.dtype) -> None:
    pool = kv_pool(8, dtype=dtype)
    assert pool.k[0].shape == pool.v[1].shape == (9, 3, 4)
    assert pool.k[0].dtype == dtype
    k, v = torch.randn((2, 3, 4)).to(dtype), torch.randn((2, 3, 4)).to(dtype)
    pool.write(1, torch.tensor([7, 2]), k, v)
    assert torch.equal(pool.k[1][torch.tensor([7, 2])], k)
    assert torch.equal(pool.v[1][torch.tensor([7, 2])], v)
    assert pool.k[0].count_nonzero() == 0
    assert pool.v[0].count_nonzero() == 0
    assert pool.k[1][torch.tensor([0, 1, 3, 4, 5, 6, 8])].count_nonzero() == 0


@pytest.mark.skipif(not STATM.exists(), reason="the system does not tell a process's resident memory")
def test_a_pool_costs_no_memory_before_it_is_used() -> None:
    """Writing 2 GiB of zeros would take a second of every start."""
    def resident_pages() -> int:
        return int(STATM.read_text().split()[1])

    before = resident_pages()
    pool = TokenToKVPool(size=2**17, n_layers=4, n_kv_heads=8, head_dim=64, dtype=torch.float32, device=CPU)
    n_bytes = sum(tensor.nbytes for tensor in [*pool.k, *pool.v])
    assert n_bytes > 2**31
    assert (resident_pages() - before) * mmap.PAGESIZE < n_bytes / 10


@pytest.mark.parametrize("size", [0, -3])
def test_a_pool_without_slots_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match="at least 1 slot"):
        kv_pool(size)


def test_a_pool_larger_than_memory_is_refused_with_its_size() -> None:
    with pytest.raises(ConfigError, match="no memory on cpu for a KV pool of 1000000000000000 tokens"):
        kv_pool(10**15)


def test_request_rows_are_handed_out_once_and_come_back() -> None:
    table = ReqToTokenPool(size=3, max_len=5, device=CPU)
    assert table.table.shape == (3, 5)
    assert table.table.dtype == torch.int64
    rows = [table.alloc(), table.alloc(), table.alloc()]
    assert sorted(row for row in rows if row is not None) == [0, 1, 2]
    assert table.alloc() is None
    table.free(1)
    assert table.free_rows() == [1]
    assert table.available == 1
    assert table.alloc() == 1


@pytest.mark.parametrize("row", [-1, 3, 2])
def test_freeing_a_row_that_is_not_taken_is_an_error(row: int) -> None:
    table = ReqToTokenPool(size=3, max_len=5, device=CPU)
    assert table.alloc() == 0
    with pytest.raises(IntegrityError, match="request row"):
        table.free(row)
    assert table.free_rows() == [1, 2]


@pytest.mark.parametrize(("size", "max_len"), [(0, 5), (3, 0)])
def test_a_table_that_holds_no_request_is_refused(size: int, max_len: int) -> None:
    with pytest.raises(ConfigError):
        ReqToTokenPool(size=size, max_len=max_len, device=CPU)
