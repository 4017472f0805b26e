"""What FlashInfer is told, by a stand-in with its interface that computes attention the naive way from it.

The library itself needs a GPU: `scripts/gpu_check.py` sets it beside torch's kernel where it is installed.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from shared_runtime.errors import ConfigError
from shared_runtime.execution.decode_graphs import DecodeGraphs, played_anew
from shared_runtime.execution.flash_attention import FlashKernels, find_flashinfer
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.decoder import Decoder
from tests.model_driver import ModelDriver
from tests.tiny_models import LLAMA_CONFIG, random_weights

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class StandIn:
    """A module with the two wrappers of FlashInfer that are used."""

    class BatchPrefillWithPagedKVCacheWrapper:
        def __init__(self, workspace: Tensor, layout: str) -> None:
            assert (workspace.dtype, layout) == (torch.uint8, "NHD")

        def plan(self, queries: Tensor, ends: Tensor, slots: Tensor, last_page: Tensor, n_heads: int, n_kv_heads: int,
                 head_dim: int, page_size: int, *, causal: bool, q_data_type: torch.dtype,
                 kv_data_type: torch.dtype) -> None:
            assert (page_size, causal, q_data_type) == (1, True, kv_data_type)
            assert all(one.dtype == torch.int32 for one in (queries, ends, slots, last_page))
            assert last_page.tolist() == [1] * (len(ends) - 1)
            self.told = queries.tolist(), ends.tolist(), slots.clone(), (n_heads, n_kv_heads, head_dim)

        def run(self, q: Tensor, paged: tuple[Tensor, Tensor]) -> Tensor:
            queries, ends, slots, shape = self.told
            assert tuple(q.shape) == (queries[-1], shape[0], shape[2])
            assert paged[0].shape[1:] == (1, *shape[1:])
            out = torch.empty_like(q)
            for row in range(len(ends) - 1):
                own = slots[ends[row]:ends[row + 1]].long()
                k, v = (one[own, 0].repeat_interleave(shape[0] // shape[1], dim=1) for one in paged)
                n_new, n_kv = queries[row + 1] - queries[row], len(own)
                scores = torch.einsum("qhd,khd->hqk", q[queries[row]:queries[row + 1]], k) / math.sqrt(shape[2])
                seen = torch.arange(n_kv)[None] <= torch.arange(n_kv - n_new, n_kv)[:, None]
                weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
                out[queries[row]:queries[row + 1]] = torch.einsum("hqk,khd->qhd", weights, v)
            return out

    class BatchDecodeWithPagedKVCacheWrapper:
        def __init__(self, workspace: Tensor, layout: str, *, use_cuda_graph: bool, paged_kv_indptr_buffer: Tensor,
                     paged_kv_indices_buffer: Tensor, paged_kv_last_page_len_buffer: Tensor) -> None:
            assert (layout, use_cuda_graph) == ("NHD", True)
            self.rows = len(paged_kv_last_page_len_buffer)
            self.places = paged_kv_indices_buffer
            self.inner = StandIn.BatchPrefillWithPagedKVCacheWrapper(workspace, layout)

        def plan(self, ends: Tensor, slots: Tensor, last_page: Tensor, n_heads: int, n_kv_heads: int, head_dim: int,
                 page_size: int, *, q_data_type: torch.dtype, kv_data_type: torch.dtype) -> None:
            assert len(last_page) == self.rows, "a recording has a fixed number of rows"
            assert len(slots) <= len(self.places)
            self.inner.plan(torch.arange(self.rows + 1, dtype=torch.int32), ends, slots, last_page, n_heads, n_kv_heads,
                            head_dim, page_size, causal=True, q_data_type=q_data_type, kv_data_type=kv_data_type)

        def run(self, q: Tensor, paged: tuple[Tensor, Tensor]) -> Tensor:
            return self.inner.run(q, paged)


@pytest.mark.parametrize("recorded", [False, True], ids=["eager", "recorded"])
def test_flashinfer_is_told_what_torch_is_told(recorded: bool) -> None:
    """Prefill, chunks behind a prefix, shared prefixes, mixed lengths, decode: the same logits by both."""
    config = ModelConfig.from_json(LLAMA_CONFIG)
    decoder = Decoder(config, random_weights(config), exact=False)
    plain, flash = ModelDriver(config, decoder), ModelDriver(config, decoder, shuffle_seed=3)
    runner, library = flash.runner, StandIn()
    shape: dict[str, Any] = {"n_heads": config.n_heads, "dtype": decoder.dtype}
    kernels = FlashKernels.over(library, runner.kv_pool, runner.req_to_token, **shape)
    runner.flash = kernels.eager
    if recorded:
        runner.graphs = DecodeGraphs(decoder, runner.req_to_token, kernels.recorded, played_anew)
    rng = random.Random(1)

    def ids(count: int) -> list[int]:
        return [rng.randrange(300) for _ in range(count)]

    first = ids(40)
    passes = [{"a": first}, {"b": first[:25] + ids(9), "a": ids(1)}, {"a": ids(7), "b": ids(1), "c": ids(1)},
              *[{name: ids(1) for name in "abc"} for _ in range(4)], {"b": ids(1)}]
    for company in passes:
        expected, found = plain.feed(company), flash.feed(company)
        for name in company:
            assert (expected[name] - found[name]).abs().max() < 1e-4
    assert runner.graphs is None or runner.graphs.played == 5


def test_a_kernel_that_is_missing_or_wrong_shows_before_any_request() -> None:
    config = ModelConfig.from_json(LLAMA_CONFIG)
    runner = ModelDriver(config, Decoder(config, random_weights(config), exact=False)).runner
    shape: dict[str, Any] = {"n_heads": config.n_heads, "dtype": torch.float32}

    class Lacks(StandIn):
        class BatchDecodeWithPagedKVCacheWrapper(StandIn.BatchDecodeWithPagedKVCacheWrapper):
            def run(self, q: Tensor, paged: tuple[Tensor, Tensor]) -> Tensor:
                raise ValueError("group size 2\nis not built")

    class Wrong(StandIn):
        class BatchPrefillWithPagedKVCacheWrapper(StandIn.BatchPrefillWithPagedKVCacheWrapper):
            def run(self, q: Tensor, paged: tuple[Tensor, Tensor]) -> Tensor:
                return torch.ones_like(q)

    for library, said in ((Lacks(), "ValueError: group size 2 is not built"), (Wrong(), "gave")):
        with pytest.raises(ConfigError, match=f"cannot serve this model: .*{said}"):
            FlashKernels.over(library, runner.kv_pool, runner.req_to_token, **shape)


@pytest.mark.parametrize(("device", "dtype", "head_dim", "exact", "said"), [
    (CPU, torch.bfloat16, 64, False, "needs CUDA"),
    (CUDA, torch.float32, 64, False, "has no float32"),
    (CUDA, torch.float16, 80, False, "has heads of 64, 128, 256, and not of 80"),
    (CUDA, torch.bfloat16, 64, True, "exact mode"),
])
def test_where_it_cannot_serve_torch_does_and_asking_for_it_says_why(
        device: torch.device, dtype: torch.dtype, head_dim: int, exact: bool, said: str) -> None:
    assert find_flashinfer("auto", device, dtype, head_dim, exact) is None
    assert find_flashinfer("sdpa", device, dtype, head_dim, exact) is None
    with pytest.raises(ConfigError, match=said):
        find_flashinfer("flashinfer", device, dtype, head_dim, exact)


def test_where_it_is_missing_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "flashinfer", None)
    assert find_flashinfer("auto", CUDA, torch.bfloat16, 64, exact=False) is None
    with pytest.raises(ConfigError, match="is not installed here"):
        find_flashinfer("flashinfer", CUDA, torch.bfloat16, 64, exact=False)
