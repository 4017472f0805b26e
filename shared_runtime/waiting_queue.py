"""The requests that wait for memory, and the order in which they get it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shared_runtime.config import SchedulePolicyName
from shared_runtime.prefix_cache import PrefixCache
from shared_runtime.request import Request


class WaitingQueue:
    """Requests that are ready to run. `fcfs` keeps their order; `lpm` serves the longest cached prefix first."""

    def __init__(self, order: SchedulePolicyName) -> None:
        self._order = order
        self._reqs: list[Request] = []

    def __len__(self) -> int:
        return len(self._reqs)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._reqs)

    def append(self, req: Request) -> None:
        """A new request, or one that a stage took out of its batch, goes to the end."""
        self._reqs.append(req)

    def put_back(self, req: Request) -> None:
        """A retracted request goes to the front: it was running already."""
        self._reqs.insert(0, req)

    def remove(self, req: Request) -> None:
        """The request was admitted or aborted."""
        self._reqs.remove(req)

    def in_order(self, cache: PrefixCache) -> list[Request]:
        """The requests in the order in which they may be admitted; the sort is stable, so ties keep theirs."""
        if self._order == "fcfs" or len(self._reqs) < 2:
            return list(self._reqs)
        return sorted(self._reqs, key=lambda req: -int(cache.match(req.all_ids[:-1]).slots.numel()))


class NewTokenEstimator:
    """How many slots to keep free for the tokens that running requests will still write.

    Most requests end before `max_new_tokens`, so only a share of it is reserved. The share starts at `start`,
    shrinks a little with each decode step in which nothing was retracted, and returns to `start` when something
    was (upstream: `new_token_ratio`, since #36).
    """

    DECAY_STEPS = 200
    FLOOR = 0.1

    def __init__(self, start: float) -> None:
        self._start = start
        self._floor = min(start, self.FLOOR)
        self.ratio = start

    def decoded(self) -> None:
        """A decode step went by without a retraction."""
        step = (self._start - self._floor) / self.DECAY_STEPS
        self.ratio = max(self._floor, self.ratio - step)

    def retracted(self) -> None:
        """Memory ran out: the estimate was too low."""
        self.ratio = self._start

    def reserve(self, reqs: Iterable[Request]) -> int:
        """Slots to keep for `reqs`."""
        left = (max(0, req.sampling.max_new_tokens - len(req.output_ids)) for req in reqs)
        return int(sum(tokens * self.ratio for tokens in left))
