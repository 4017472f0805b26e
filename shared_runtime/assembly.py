"""Puts an engine's parts together from its settings: model, tokenizer, memory, stage, tracer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from shared_runtime.config import EngineConfig
from shared_runtime.constrain.using.reasoning import ReasoningPart
from shared_runtime.errors import ConfigError
from shared_runtime.execution.agreed_policy import AgreedPolicy
from shared_runtime.execution.decode_buckets import GatheredAttention, StaticAttention
from shared_runtime.execution.decode_graphs import CudaRecorder, DecodeGraphs
from shared_runtime.execution.flash_attention import FlashKernels, find_flashinfer
from shared_runtime.execution.rank_group import RankGroup
from shared_runtime.kv_memory import KVMemory
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.decoder import Decoder
from shared_runtime.model.locate import locate_model
from shared_runtime.model.shard import local_config
from shared_runtime.model_runner import ModelRunner, load_model
from shared_runtime.naive_cache import NaiveCache
from shared_runtime.policy import StageContext, StagePolicy, StageSpec, wishes
from shared_runtime.prefix_cache import PrefixCache
from shared_runtime.radix_cache import RadixCache
from shared_runtime.step_tracer import StepTracer
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.tracer import NullTracer, Tracer
from stages import first_stage_able, get_stage

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory: what engines of one process may share, as it holds no state of any request.

    Attributes:
        settings: those of the `EngineConfig` it was loaded for, and the rank whose share it is.
        model, decoder, tokenizer: its shape, its weights and what they read.
    """

    settings: tuple[object, ...]
    model: ModelConfig
    decoder: Decoder
    tokenizer: Tokenizer


@dataclass(frozen=True, slots=True)
class EngineParts:
    """Everything an engine is made of, ready to run; `thinks` is None where no answer begins with reasoning."""

    loaded: LoadedModel
    model: ModelConfig
    tokenizer: Tokenizer
    runner: ModelRunner
    memory: KVMemory
    stage: StageSpec
    policy: StagePolicy
    tracer: Tracer
    ranks: RankGroup
    thinks: ReasoningPart | None


def assemble(config: EngineConfig, progress: Progress | None, ranks: RankGroup,
             loaded: LoadedModel | None = None) -> EngineParts:
    """Load and build everything `config` asks for; of a model that several ranks share, this rank's part.

    Args:
        config, progress, ranks: those of the engine.
        loaded: the model of another engine, to be used again instead of loading it a second time.

    Raises:
        CheckpointError: the model cannot be found, fetched or loaded.
        ConfigError: a setting does not fit the model or the stage, or `loaded` was loaded with others.
    """
    stage = get_stage(config.stage)
    listed = config.backend is None or config.backend in stage.capabilities.backends
    if not listed and not stage.capabilities.open_backends:
        raise ConfigError(f"stage {stage.id} has no backend {config.backend!r}", where="backend",
                          fix=f"it has: {', '.join(stage.capabilities.backends)}")
    _check_abilities(config, stage, ranks.size)
    if config.torch_device.type == "cpu":
        torch.set_num_threads(config.thread_count)
    loaded = loaded or _load(config, progress, ranks)
    if loaded.settings != _settings(config, ranks):
        raise ConfigError("the model was loaded with other settings", where="loaded",
                          fix="leave it out, or keep model, load_format, dtype, weights, device and exact as they were")
    model, tokenizer = loaded.model, loaded.tokenizer
    memory = _memory(config, model)
    overlaps = stage.capabilities.scheme(config.overlap) is not None
    options = config.options.beside_overlap() if overlaps else config.options
    policy = stage.build(StageContext(
        vocabulary=tokenizer.vocabulary, tokenizer=tokenizer, device=config.torch_device, limits=config.limits,
        backend=config.backend, progress=progress, options=options, memory=memory,
        ranks=ranks))
    if ranks.size > 1:
        policy = AgreedPolicy(policy, ranks)
    return EngineParts(
        loaded=loaded, model=model, tokenizer=tokenizer, memory=memory, stage=stage, policy=policy, ranks=ranks,
        runner=_runner(config, loaded, memory, ranks),
        tracer=_tracer(config, tokenizer, policy), thinks=ReasoningPart.of(tokenizer, config.options.think_end))


def check_ranks(config: EngineConfig, size: int, progress: Progress | None = None) -> None:
    """Whether `size` processes could share this engine: what would fail in each of them fails here, once.

    Raises:
        CheckpointError: the model cannot be found or fetched.
        ConfigError: so many cannot share it (naming the sizes that can), or the stage or this machine cannot do it.
    """
    _check_abilities(config, get_stage(config.stage), size)
    gpus = torch.cuda.device_count() if config.torch_device.type == "cuda" else size
    if gpus < size:
        raise ConfigError(f"{size} ranks need a GPU each, and this machine has {gpus}", where="ranks",
                          fix="use fewer, or --device cpu")
    local_config(ModelConfig.from_folder(locate_model(config.model, progress)), size)


def _load(config: EngineConfig, progress: Progress | None, ranks: RankGroup) -> LoadedModel:
    folder = locate_model(config.model, progress)
    model, decoder = load_model(folder, dtype=config.torch_dtype, device=config.torch_device, exact=config.exact,
                                load_format=config.load_format, group=ranks, weights=config.weights)
    tokenizer = Tokenizer.from_folder(folder, vocab_width=model.vocab_size)
    return LoadedModel(_settings(config, ranks), model, decoder, tokenizer)


def _settings(config: EngineConfig, ranks: RankGroup) -> tuple[object, ...]:
    """What decides about the weights and the way they are multiplied."""
    return (config.model, config.load_format, config.torch_dtype, config.torch_device, config.exact, config.weights,
            ranks.rank, ranks.size)


def _check_abilities(config: EngineConfig, stage: StageSpec, ranks: int) -> None:
    """Asking a generation for what it could not do is an error that names the first one that can."""
    for wish in wishes(config.options, config.overlap is True, ranks):
        if not wish.granted_by(stage.capabilities):
            first = first_stage_able(wish.granted_by)
            raise ConfigError(f"stage {stage.id} {wish.lack}", where=wish.setting,
                              fix=f"use --stage {first}" if first else "leave it out")


def _runner(config: EngineConfig, loaded: LoadedModel, memory: KVMemory, ranks: RankGroup) -> ModelRunner:
    """The model over its memory, by the kernels that this device has."""
    model, decoder = loaded.model, loaded.decoder
    library = find_flashinfer(config.attention, config.torch_device, decoder.dtype, model.head_dim, config.exact)
    flash = None
    if library is not None:
        try:
            flash = FlashKernels.over(library, memory.pool, memory.tables, n_heads=model.n_heads, dtype=decoder.dtype)
        except ConfigError as error:
            if config.attention == "flashinfer":
                raise
            logging.getLogger(__name__).warning("%s; torch's attention does", error.message)
    graphs = None
    if config.torch_device.type == "cuda" and config.cuda_graphs and not config.exact and ranks.size == 1:
        attention: StaticAttention = GatheredAttention(memory.pool, memory.tables, decoder.dtype)
        if flash is not None:
            attention = flash.recorded
        graphs = DecodeGraphs(decoder, memory.tables, attention, CudaRecorder())
    return ModelRunner(model, decoder, memory.pool, memory.tables, graphs=graphs,
                       flash=None if flash is None else flash.eager)


def _memory(config: EngineConfig, model: ModelConfig) -> KVMemory:
    device = config.torch_device
    pool = TokenToKVPool(size=config.kv_pool_tokens, n_layers=model.n_layers, n_kv_heads=model.n_kv_heads,
                         head_dim=model.head_dim, dtype=config.torch_dtype, device=device)
    longest = min(model.context_length, config.kv_pool_tokens)
    # One row more than may run: the request whose prompt is being fed in chunks holds one too.
    tables = ReqToTokenPool(size=config.max_running_requests + 1, max_len=longest, device=device)
    cache: PrefixCache = RadixCache(pool) if config.prefix_cache == "radix" else NaiveCache(pool)
    return KVMemory(pool, tables, cache)


def _tracer(config: EngineConfig, tokenizer: Tokenizer, policy: StagePolicy) -> Tracer:
    if config.trace is None or config.trace is False:
        return NullTracer()
    path = config.trace if isinstance(config.trace, Path) else None
    return StepTracer(tokenizer.vocabulary, policy.describe, path=path, with_tree=config.trace_tree)
