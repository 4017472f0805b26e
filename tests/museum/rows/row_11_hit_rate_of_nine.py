"""Row 11: calls are counted on a miss only, so the hit rate is hits per miss."""

from __future__ import annotations

from dataclasses import dataclass

from shared_runtime.constraint import Constraint
from stages.stage2_jump_forward.base_cache import BaseCache, Sized
from stages.stage2_jump_forward.decoder import JumpForwardPolicy
from tests.museum.bench import Bench, hold, request
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.policies import ready


class TotalOnMisses(BaseCache[Sized]):
    """Specimen of `BaseCache`: the total is raised where a value is built."""

    @property
    def hit_rate(self) -> float:
        """Hits by total."""
        total = self.misses
        return self.hits / max(1, total)


@dataclass(frozen=True)
class _Value:
    nbytes: int = 1


def a_rate_is_at_most_one(cache_class: type[BaseCache[Sized]], bench: Bench) -> None:
    """One miss and nine hits."""
    cache = cache_class()
    for _ in range(10):
        cache.get("key", _Value)
    hold(0.0 <= cache.hit_rate <= 1.0, f"the hit rate is {cache.hit_rate}")
    hold(cache.hit_rate == 0.9, f"nine hits of ten calls are a rate of {cache.hit_rate}")


def scenario(bench: Bench) -> None:
    """Ten requests with one regex."""
    policy = JumpForwardPolicy(bench.context())
    ready(policy, *[request(Constraint.regex("[0-9]"), rid=f"r{index}") for index in range(10)])
    hold(policy.fsm_cache.hit_rate <= 1.0, f"the hit rate is {policy.fsm_cache.hit_rate}")


EXHIBIT: Exhibit[type[BaseCache[Sized]]] = Exhibit(
    11, TotalOnMisses, {"stage2": BaseCache}, a_rate_is_at_most_one, "the hit rate is 9.0",
    Injection(BaseCache, "hit_rate", TotalOnMisses.hit_rate, scenario, "the hit rate is 9.0"))
