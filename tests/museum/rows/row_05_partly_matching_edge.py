"""Row 5: a prefix match ends at a node whose edge matches only in part, so its lock covers tokens nobody uses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from shared_runtime import assembly
from shared_runtime.prefix_cache import PrefixMatch
from shared_runtime.radix_cache import RadixCache, RadixNode
from shared_runtime.sampling_params import SamplingParams
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold, memory
from tests.museum.exhibit import Exhibit, Injection


class UnsplitCache(RadixCache):
    """Specimen of `RadixCache`: where the key parts from an edge, the edge stays whole and its lower end is given."""

    def match(self, ids: Sequence[int]) -> PrefixMatch:
        """The longest cached prefix."""
        node, done = self._root, 0
        slots = [node.slots]
        while done < len(ids) and ids[done] in node.children:
            node = node.children[ids[done]]
            common = _common(node, ids[done:])
            slots.append(node.slots[:common])
            done += common
            if common < len(node):
                break
        return PrefixMatch(torch.cat(slots), node)


def _common(node: RadixNode, key: Sequence[int]) -> int:
    n = min(len(node), len(key))
    differ = np.flatnonzero(node.ids[:n] != np.array(key[:n]))
    return int(differ[0]) if differ.size else n


def a_match_is_as_long_as_its_path(cache_class: type[RadixCache], bench: Bench) -> None:
    """"abcd" is there; "abxy" matches two tokens, and the node it ends at stands for those two."""
    pool = memory().pool
    cache = cache_class(pool)
    slots = pool.alloc(4)
    assert slots is not None
    cache.insert([10, 11, 12, 13], slots)
    match = cache.match([10, 11, 20, 21])
    ids, _ = cache.path(match.node)
    hold(len(match.slots) == 2, f"{len(match.slots)} tokens match instead of 2")
    hold(len(ids) == 2, f"2 tokens match, and the lock covers {len(ids)}")


def scenario(bench: Bench) -> None:
    """A prompt, then one that parts from it early and needs the room of the rest."""
    engine = bench.engine(1, kv_pool_tokens=64, trace=True)
    bench.run(engine, [Ask("abcd" + "e" * 40, sampling=SamplingParams(max_new_tokens=4))])
    engine.add_request("abcd" + "f" * 40, sampling=SamplingParams(max_new_tokens=4))
    record = engine.step()
    assert record is not None
    hold(record.mode == "extend", "the pool counts as full of tokens that nobody uses, and nothing runs")


EXHIBIT: Exhibit[type[RadixCache]] = Exhibit(
    5, UnsplitCache, {"runtime": RadixCache}, a_match_is_as_long_as_its_path, "2 tokens match, and the lock covers 4",
    Injection(assembly, "RadixCache", UnsplitCache, scenario, "full of tokens that nobody uses"))
