"""Every setting of an engine in one value that checks itself. Defaults are fixed, never measured at start."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import torch

from shared_runtime.errors import ConfigError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.model.linear_kind import WeightsName, check_weights
from shared_runtime.policy import StageOptions
from shared_runtime.setting_checks import check_choice, check_flags, check_kind, check_whole

DtypeName = Literal["fp32", "bf16", "fp16"]
DeviceName = Literal["auto", "cpu", "cuda"]
LoadFormat = Literal["auto", "dummy"]
SchedulePolicyName = Literal["fcfs", "lpm"]
PrefixCacheName = Literal["radix", "naive"]
AttentionName = Literal["auto", "sdpa", "flashinfer"]

_DTYPES: dict[DtypeName, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def default_threads(cores: int) -> int:
    """1 on up to two cores (a second one slows single-token decoding down), else up to 4."""
    return 1 if cores <= 2 else min(4, cores)


@dataclass(frozen=True)
class EngineConfig:
    """Settings of one engine.

    Attributes:
        model: "embedded", a Hugging Face folder, a .gguf file, or a hub id "owner/name".
        load_format: "dummy" makes random weights of the model's shape and reads no weight file.
        stage: 1 to 5, or the stage's name.
        backend: the grammar engine, for stages that have a choice; None takes the stage's default.
        dtype: of weights, activations and the KV pool.
        weights: how linear layers hold them on a CPU. "plain" copies nothing; "packed" makes a copy in oneDNN's order;
            "int8" rounds them to 8 bits (with bf16 only); "auto" packs up to 4 GiB in fast mode, where oneDNN can.
        device: "auto" takes CUDA when there is one.
        threads: torch threads on a CPU; None takes `default_threads`.
        attention: "sdpa" is torch's own kernel; "flashinfer" reads the KV pool in place (CUDA, bf16 or fp16); "auto"
            takes FlashInfer where it is installed and fits.
        cuda_graphs: on CUDA, record decode passes at padded sizes and play them; not in exact mode, nor over ranks.
        exact: bit-identical logits whatever the batch, chunking or neighbours (contracts, section 1); slower.
        kv_pool_tokens: slots of the KV pool, one token each.
        max_running_requests: most requests in a batch.
        chunked_prefill_size: most tokens that one EXTEND pass feeds; longer prompts go in chunks.
        schedule_policy: "fcfs" or "lpm" (longest cached prefix first).
        prefix_cache: "radix", or "naive" (no sharing: the oracle that sharing changes nothing).
        new_token_ratio: share of `max_new_tokens` that admission reserves at first; it falls while nothing is
            retracted and comes back when something is.
        limits: on grammars. options: settings that only some stages look at.
        seed: of requests that bring none of their own.
        sync_token_ids: ranks agree on the sampled ids whenever a batch has a grammar. False shows what happens
            without: ranks that round differently go different ways.
        overlap: run the CPU's work for the next pass while this one is computed; None takes the stage's default
            (off in stage 4, on in stage 5).
        trace: None for no trace, True to get a `StepRecord` from each `step()`, a path to write JSON lines to.
        trace_tree: put a snapshot of the prefix cache into each record.
    """

    model: str = "embedded"
    load_format: LoadFormat = "auto"
    stage: int | str = 1
    backend: str | None = None
    dtype: DtypeName = "fp32"
    weights: WeightsName = "auto"
    device: DeviceName = "cpu"
    threads: int | None = None
    attention: AttentionName = "auto"
    cuda_graphs: bool = True
    exact: bool = False
    kv_pool_tokens: int = 8_192
    max_running_requests: int = 64
    chunked_prefill_size: int = 512
    schedule_policy: SchedulePolicyName = "fcfs"
    prefix_cache: PrefixCacheName = "radix"
    new_token_ratio: float = 0.7
    limits: GrammarLimits = field(default_factory=GrammarLimits)
    options: StageOptions = field(default_factory=StageOptions)
    seed: int = 0
    sync_token_ids: bool = True
    overlap: bool | None = None
    trace: Path | bool | None = None
    trace_tree: bool = False

    def __post_init__(self) -> None:
        check_choice("load_format", self.load_format, get_args(LoadFormat))
        check_choice("dtype", self.dtype, get_args(DtypeName))
        check_choice("weights", self.weights, get_args(WeightsName))
        check_choice("device", self.device, get_args(DeviceName))
        check_choice("attention", self.attention, get_args(AttentionName))
        check_choice("schedule_policy", self.schedule_policy, get_args(SchedulePolicyName))
        check_choice("prefix_cache", self.prefix_cache, get_args(PrefixCacheName))
        check_whole("kv_pool_tokens", self.kv_pool_tokens)
        check_whole("max_running_requests", self.max_running_requests)
        check_whole("chunked_prefill_size", self.chunked_prefill_size)
        if self.threads is not None:
            check_whole("threads", self.threads)
            if self.threads > 4 * usable_cores():
                raise ConfigError(f"{self.threads} threads on {usable_cores()} cores would stand in each other's way",
                                  where="threads", fix="leave it out, or use at most one a core")
        check_flags(cuda_graphs=self.cuda_graphs, exact=self.exact, sync_token_ids=self.sync_token_ids,
                    trace_tree=self.trace_tree)
        check_kind("overlap", self.overlap, bool)
        check_kind("limits", self.limits, GrammarLimits, optional=False)
        check_kind("options", self.options, StageOptions, optional=False)
        if isinstance(self.trace, Path) and not self.trace.absolute().parent.is_dir():
            raise ConfigError("cannot write the trace: no such folder", where=str(self.trace),
                              fix="name a file in a folder that exists")
        if not 0.0 < self.new_token_ratio <= 1.0:
            raise ConfigError(f"{self.new_token_ratio} is not in (0, 1]", where="new_token_ratio")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("this torch sees no CUDA device", where="device",
                              fix="use --device cpu, or install a CUDA build of torch")
        check_weights(self.weights, dtype=self.torch_dtype, device=self.torch_device, exact=self.exact)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The torch dtype of `dtype`."""
        return _DTYPES[self.dtype]

    @property
    def torch_device(self) -> torch.device:
        """The device `device` stands for on this machine."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    @property
    def thread_count(self) -> int:
        """Torch threads this engine uses on a CPU."""
        return default_threads(usable_cores()) if self.threads is None else self.threads
