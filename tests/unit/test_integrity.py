"""The books of the KV pool: handing over to either cache keeps them, and every kind of error is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_runtime.errors import IntegrityError
from shared_runtime.integrity import check_integrity
from shared_runtime.kv_handover import hand_over
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool
from shared_runtime.naive_cache import NaiveCache
from shared_runtime.prefix_cache import PrefixCache
from shared_runtime.radix_cache import RadixCache
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams

CPU = torch.device("cpu")
CacheMaker = Callable[[TokenToKVPool], PrefixCache]


@dataclass
class Machine:
    """A scheduler's memory without a scheduler; `content` is the prefix that each slot was computed for."""

    make_cache: CacheMaker
    size: int = 40
    running: list[Request] = field(default_factory=list)
    content: dict[int, tuple[int, ...]] = field(default_factory=dict)
    started: int = 0

    def __post_init__(self) -> None:
        self.pool = TokenToKVPool(size=self.size, n_layers=1, n_kv_heads=1, head_dim=1, dtype=torch.float32,
                                  device=CPU)
        self.tables = ReqToTokenPool(size=4, max_len=32, device=CPU)
        self.cache = self.make_cache(self.pool)

    def start(self, ids: list[int]) -> Request | None:
        """Admit a request: a row, and the cached prefix but for its last token, locked."""
        row = self.tables.alloc()
        if row is None:
            return None
        req = Request(f"r{self.started}", ids, "", SamplingParams(), seed=0)
        match = self.cache.match(ids[:-1])
        self.cache.lock(match.node)
        n = len(match.slots)
        self.tables.table[row, :n] = match.slots
        req.table_row, req.last_node, req.prefix_len, req.kv_len = row, match.node, n, n
        self.started += 1
        self.running.append(req)
        return req

    def compute(self, req: Request, n: int) -> bool:
        """A pass over the next `n` tokens: their slots are taken and filled. False when there is no room."""
        n = min(n, req.total_len - req.kv_len)
        if self.pool.available < n:
            self.cache.evict(n - self.pool.available)
        slots = self.pool.alloc(n)
        if slots is None:
            return False
        for i, slot in enumerate(slots.tolist()):
            self.content[slot] = tuple(req.all_ids[:req.kv_len + i + 1])
        self.tables.table[req.table_row, req.kv_len:req.kv_len + n] = slots
        req.kv_len += n
        return True

    def share(self, req: Request) -> None:
        hand_over(self.cache, self.pool, self.tables.table, req, running=True)

    def end(self, req: Request) -> None:
        assert req.table_row is not None
        hand_over(self.cache, self.pool, self.tables.table, req, running=False)
        self.tables.free(req.table_row)
        req.table_row = None
        self.running.remove(req)

    def check(self) -> None:
        check_integrity(self.pool, self.tables, self.cache, self.running)
        for req in self.running:
            for i, slot in enumerate(self.tables.table[req.table_row, :req.kv_len].tolist()):
                assert self.content[slot] == tuple(req.all_ids[:i + 1]), "a slot holds another prefix's KV"

    def row(self, req: Request) -> list[int]:
        listed: list[int] = self.tables.table[req.table_row, :req.kv_len].tolist()
        return listed


both_caches = pytest.mark.parametrize("make_cache", [RadixCache, NaiveCache])


def started(machine: Machine, ids: list[int], computed: int | None = None) -> Request:
    req = machine.start(ids)
    assert req is not None
    assert machine.compute(req, len(ids) if computed is None else computed)
    return req


def test_a_running_request_shares_its_prompt_and_goes_on_with_the_caches_slots() -> None:
    machine = Machine(RadixCache)
    first = started(machine, [1, 2, 3, 4])
    machine.share(first)
    assert (first.prefix_len, machine.cache.protected) == (4, 4)
    second = started(machine, [1, 2, 3, 9])
    assert second.prefix_len == 3
    assert machine.row(second)[:3] == machine.row(first)[:3]
    machine.check()


def test_two_that_computed_the_same_prompt_side_by_side_end_up_on_one_copy() -> None:
    machine = Machine(RadixCache)
    first, second = started(machine, [1, 2, 3, 4]), started(machine, [1, 2, 3, 5])
    assert machine.pool.available == machine.size - 8
    machine.share(first)
    machine.share(second)
    machine.check()
    assert machine.pool.available == machine.size - 5, "the duplicates are free again"
    assert machine.row(second)[:3] == machine.row(first)[:3]


def test_chunk_after_chunk_the_lock_moves_down_with_the_prefix() -> None:
    machine = Machine(RadixCache)
    req = started(machine, [1, 2, 3, 4, 5, 6], computed=2)
    for done in (2, 4, 6):
        machine.share(req)
        assert (req.prefix_len, machine.cache.protected) == (done, done)
        machine.check()
        machine.compute(req, 2)
    machine.end(req)
    assert (machine.cache.protected, machine.cache.evictable) == (0, 6)
    machine.check()


@both_caches
def test_a_request_that_ends_keeps_nothing(make_cache: CacheMaker) -> None:
    machine = Machine(make_cache)
    req = started(machine, [1, 2, 3])
    req.output_ids += [7, 8]
    machine.share(req)
    machine.compute(req, 1)
    machine.end(req)
    assert (req.last_node, req.prefix_len, req.kv_len) == (None, 0, 0)
    machine.check()
    assert machine.pool.available + machine.cache.evictable == machine.size
    assert machine.cache.match([1, 2, 3, 7, 8]).slots.numel() == (4 if machine.cache.shares else 0)


def test_without_sharing_a_running_request_keeps_its_own_slots() -> None:
    machine = Machine(NaiveCache)
    req = started(machine, [1, 2, 3])
    before = machine.row(req)
    machine.share(req)
    assert (machine.row(req), req.prefix_len, req.kv_len) == (before, 0, 3)
    machine.check()


@both_caches
def test_a_request_that_was_never_in_a_batch_hands_over_nothing(make_cache: CacheMaker) -> None:
    machine = Machine(make_cache)
    req = Request("waiting", [1, 2], "", SamplingParams(), seed=0)
    hand_over(machine.cache, machine.pool, machine.tables.table, req, running=False)
    machine.check()
    assert machine.pool.available == machine.size


def test_handing_over_after_the_ids_were_cut_short_is_an_error() -> None:
    """The slots belong to the ids they were computed from (museum row 4 in another coat)."""
    machine = Machine(RadixCache)
    req = started(machine, [1, 2, 3])
    req.prompt_ids = [1, 2]
    with pytest.raises(ValueError, match="2 ids cannot go in with 3 slots"):
        machine.share(req)


def test_handing_over_other_ids_than_the_locked_prefix_is_an_error() -> None:
    machine = Machine(RadixCache)
    req = started(machine, [1, 2, 3])
    machine.share(req)
    req.prompt_ids = [1, 9, 3]
    with pytest.raises(IntegrityError, match="1 tokens of its locked prefix of 3"):
        hand_over(machine.cache, machine.pool, machine.tables.table, req, running=True)


def leak_a_slot(machine: Machine, req: Request) -> None:
    machine.pool.alloc(1)


def own_a_slot_twice(machine: Machine, req: Request) -> None:
    machine.tables.table[req.table_row, 4] = machine.cache.held_slots()[0]


def insert_but_keep(machine: Machine, req: Request) -> None:
    machine.cache.insert([1, 2, 3, 4, 5], machine.tables.table[req.table_row, :5])


def free_a_slot_in_use(machine: Machine, req: Request) -> None:
    machine.pool.free(machine.tables.table[req.table_row, 4:5])


def point_at_the_scratch_slot(machine: Machine, req: Request) -> None:
    machine.tables.table[req.table_row, 4] = 0


def leak_a_row(machine: Machine, req: Request) -> None:
    machine.tables.alloc()


def free_a_row_in_use(machine: Machine, req: Request) -> None:
    assert req.table_row is not None
    machine.tables.free(req.table_row)


def lose_the_row(machine: Machine, req: Request) -> None:
    req.table_row = None


def lock_without_a_request(machine: Machine, req: Request) -> None:
    machine.cache.lock(machine.cache.match([1, 2]).node)


def unlock_a_running_request(machine: Machine, req: Request) -> None:
    assert req.last_node is not None
    machine.cache.unlock(req.last_node)


def claim_more_than_the_lock_covers(machine: Machine, req: Request) -> None:
    machine.cache.insert([1, 2, 3, 4, 5], machine.tables.table[req.table_row, :5].clone())
    req.prefix_len = 5


def rewrite_the_ids(machine: Machine, req: Request) -> None:
    req.prompt_ids = [1, 9, 3, 4, 5]


def use_other_slots_for_the_prefix(machine: Machine, req: Request) -> None:
    machine.tables.table[req.table_row, :2] = machine.tables.table[req.table_row, :2].flip(0)


def count_more_than_was_asked(machine: Machine, req: Request) -> None:
    slots = machine.pool.alloc(1)
    assert slots is not None
    machine.tables.table[req.table_row, 5:6] = slots
    req.kv_len = 6


@pytest.mark.parametrize(("break_it", "message"), [
    (leak_a_slot, r"1 KV slots are owned by nobody: \[6\]"),
    (own_a_slot_twice, r"owned by nobody: \[5\]"),
    (insert_but_keep, r"1 KV slots are owned twice: \[5\], held by the cache and request r0"),
    (free_a_slot_in_use, r"owned twice: \[5\], held by the free list and request r0"),
    (point_at_the_scratch_slot, r"owned by nobody: \[5\]"),
    (leak_a_row, r"table rows in use are \[0, 1\], running requests have \[0\]"),
    (free_a_row_in_use, r"table rows in use are \[\], running requests have \[0\]"),
    (lose_the_row, r"request r0 is running without a table row"),
    (lock_without_a_request, r"lock count 2, 1 running requests below"),
    (unlock_a_running_request, r"lock count 0, 1 running requests below"),
    (claim_more_than_the_lock_covers, r"request r0: its lock covers 4 tokens, its prefix has 5"),
    (rewrite_the_ids, r"request r0: its locked prefix is of other tokens"),
    (use_other_slots_for_the_prefix, r"r0: its table row does not hold the slots of its locked prefix"),
    (count_more_than_was_asked, r"request r0: prefix_len 4, kv_len 6 and 5 tokens are out of order"),
])
def test_every_kind_of_wrong_entry_is_found_and_named(
        break_it: Callable[[Machine, Request], None], message: str) -> None:
    machine = Machine(RadixCache)
    req = started(machine, [1, 2, 3, 4, 5], computed=4)
    machine.share(req)
    machine.compute(req, 1)
    machine.check()
    break_it(machine, req)
    with pytest.raises(IntegrityError, match=message):
        machine.check()


EVENTS = st.lists(st.tuples(
    st.sampled_from(["start", "start", "compute", "compute", "share", "share", "emit", "end", "evict"]),
    st.integers(0, 99), st.lists(st.integers(0, 2), min_size=1, max_size=9)), max_size=60)


@both_caches
@settings(max_examples=80, deadline=None)
@given(events=EVENTS)
def test_whatever_requests_do_the_books_balance_and_every_slot_holds_the_right_prefix(
        make_cache: CacheMaker, events: list[tuple[str, int, list[int]]]) -> None:
    machine = Machine(make_cache)
    for what, number, ids in events:
        req = machine.running[number % len(machine.running)] if machine.running else None
        if what == "start":
            machine.start(ids)
        elif what == "evict":
            machine.cache.evict(number % 20)
        elif req is not None:
            act_on(machine, req, what, ids)
        machine.check()
    for req in list(machine.running):
        machine.end(req)
    machine.check()
    machine.cache.evict(machine.size)
    assert machine.pool.available == machine.size, "nothing is left behind"


def act_on(machine: Machine, req: Request, what: str, ids: list[int]) -> None:
    if what == "compute" and not machine.compute(req, len(ids)):
        machine.end(req)  # no room: retracted
    elif what == "share":
        machine.share(req)
    elif what == "emit" and req.total_len < 20:
        req.output_ids.append(ids[0])
    elif what == "end":
        machine.end(req)
