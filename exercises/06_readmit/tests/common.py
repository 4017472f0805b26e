"""Requests in a small memory, and the checks of exercise 6. The runtime's bookkeeper counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from exercises.bench import bench, in_place
from jumpforward.exercises.case import Row, Wrong, expect
from shared_runtime.errors import IntegrityError
from shared_runtime.kv_memory import KVMemory
from shared_runtime.request import Request
from tests.conformance.harness import Ask
from tests.museum.bench import memory, request
from tests.museum.jumps import ask

Release = Callable[[KVMemory, Request], None]


def running(kv: KVMemory, rid: str, prompt: Sequence[int], output: Sequence[int]) -> Request:
    """A request that has computed all of its tokens but the newest one."""
    req = request(rid=rid, prompt_ids=list(prompt))
    assert kv.attach(req, len(prompt) - 1)
    req.output_ids = list(output)
    slots = kv.take(len(req.all_ids) - 1 - req.kv_len)
    assert slots is not None
    kv.write(req, slots)
    req.kv_len = len(req.all_ids) - 1
    return req


def books(kv: KVMemory, others: list[Request], where: str) -> None:
    """They balance."""
    try:
        kv.check(others)
    except IntegrityError as error:
        raise Wrong(f"{where}: the books do not balance: {error}") from None


def all_is_the_caches(part: Release, asks: Sequence[tuple[Sequence[int], Sequence[int]]], together: bool) -> None:
    """Requests one after the other, or all running before the first is released."""
    kv = memory()
    before = kv.tables.available
    reqs = []
    for index, (prompt, output) in enumerate(asks):
        reqs.append(running(kv, f"r{index}", prompt, output))
        if not together:
            part(kv, reqs[-1])
    if together:
        for index, req in enumerate(reqs):
            part(kv, req)
            books(kv, reqs[index + 1:], f"after the release of request {index} of {len(reqs)}")
    where = f"requests {[[*prompt, *output] for prompt, output in asks]}, {'together' if together else 'in turn'}"
    for req in reqs:
        left = {name: getattr(req, name) for name in ("table_row", "last_node", "prefix_len", "kv_len")}
        expect(left == {"table_row": None, "last_node": None, "prefix_len": 0, "kv_len": 0},
               f"{where}: request {req.rid} still has {left}")
    expect(kv.tables.available == before, f"{where}: {before - kv.tables.available} rows of the table are lost")
    expect(kv.cache.protected == 0,
           f"{where}: {kv.cache.protected} tokens are locked by nobody, and can never be evicted")
    books(kv, [], where)
    for prompt, output in asks:
        computed = [*prompt, *output][:-1]
        found = len(kv.cache.match(computed).slots)
        expect(found == len(computed), f"{where}: of {computed} the cache has {found} tokens")


def nothing_happens_twice(part: Release) -> None:
    """Released, and another request has its row by then."""
    kv = memory(rows=2)
    req = running(kv, "first", [5, 6, 7], [8])
    part(kv, req)
    other = running(kv, "other", [5, 9], [10, 11])
    part(kv, req)
    books(kv, [other], "a request was released twice, another had begun meanwhile")
    expect(other.table_row is not None and kv.tables.available == 1,
           "a request was released twice, another had begun meanwhile: its row was given back")
    part(kv, request(rid="never"))
    books(kv, [other], "a request that was never in a batch was released")


def stage_2_runs(part: Release, pattern: str, count: int, **settings: int) -> None:
    """Equal requests with jumps, then the bookkeeper."""
    with bench() as made:
        asks = [ask(pattern, max_new_tokens=24), Ask("y")] * count
        right = made.run(made.engine(2, **settings), asks)
        engine = made.engine(2, **settings)
        with in_place(KVMemory, "release", part):
            got = made.run(engine, asks)
        try:
            engine.check_integrity()
        except IntegrityError as error:
            raise Wrong(f"in stage 2, {2 * count} requests: the books do not balance: {error}") from None
    for ours, theirs in zip(right, got, strict=True):
        expect(theirs.error is None, f"in stage 2, regex {pattern!r}: {theirs.error}")
        expect(ours.text == theirs.text, f"in stage 2, regex {pattern!r}: the answer is {theirs.text!r}, expected "
                                         f"{ours.text!r}")


def picture(part: Release) -> list[Row]:
    """Slots by owner after each of three releases, two requests of which have the same text."""
    kv, real = memory(), memory()
    asks = [([5, 6, 7], [8, 9]), ([5, 6, 7], [8, 9]), ([5, 6, 20], [21])]
    mine = [running(kv, f"r{index}", *words) for index, words in enumerate(asks)]
    theirs = [running(real, f"r{index}", *words) for index, words in enumerate(asks)]
    rows = []
    for index, (req, other) in enumerate(zip(mine, theirs, strict=True)):
        part(kv, req)
        real.release(other)
        rows.append(Row(f"after {[*asks[index][0], *asks[index][1]]}", _drawn(kv), _drawn(real)))
    return rows


def _drawn(kv: KVMemory) -> str:
    return f"{kv.pool.available} free, {kv.cache.evictable} cached, {kv.cache.protected} locked"
