"""Row 10: sampled and jumped tokens are one count."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shared_runtime import result as result_module
from shared_runtime.trace import TokenOrigin, count_tokens
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import THREE_AND_SIX, ask

Count = Callable[[Sequence[TokenOrigin]], dict[str, int]]


def one_counter(origins: Sequence[TokenOrigin], drafted: int = 0) -> dict[str, int]:
    """Specimen of `count_tokens`: a completion has so many tokens."""
    return count_tokens(["sampled"] * len(origins), drafted)


def sampled_tokens_are_counted_apart(count: Count, bench: Bench) -> None:
    """Three sampled, six jumped."""
    counts = count(THREE_AND_SIX)
    hold(counts["sampled"] == 3, f"3 tokens were sampled, and {counts['sampled']} are counted")
    hold(counts["jumped"] == 6, f"6 tokens were jumped, and {counts['jumped']} are counted")


def scenario(bench: Bench) -> None:
    """An answer with a jump in stage 2: as many sampled tokens as passes that gave one."""
    result = bench.run(bench.engine(2), [ask("[a-z]{2}: true, false")])[0]
    passes = result.metrics.sampled_tokens
    hold(result.counts["sampled"] == passes,
         f"{passes} passes sampled a token, and {result.counts['sampled']} are counted")


EXHIBIT: Exhibit[Count] = Exhibit(
    10, one_counter, {"runtime": count_tokens}, sampled_tokens_are_counted_apart, "3 tokens were sampled, and 9",
    Injection(result_module, "count_tokens", one_counter, scenario, "passes sampled a token, and"))
