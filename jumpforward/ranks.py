"""`jumpforward run` on several ranks: started here (`--tp N`), or by `torchrun`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jumpforward.console import ProgressLine
from jumpforward.exit_codes import OK, REQUEST_ERROR, USAGE_ERROR
from jumpforward.rank_options import RankOptions
from shared_runtime.errors import ConfigError, JumpforwardError
from shared_runtime.execution.rank_place import RankPlace

if TYPE_CHECKING:
    from shared_runtime.config import EngineConfig
    from shared_runtime.execution.parallel_engine import ParallelEngine
    from shared_runtime.execution.rank_group import TorchRankGroup


def place_of(options: RankOptions) -> RankPlace | None:
    """This process's place, None when it is alone or is to start the others.

    Raises:
        ConfigError: `--tp` and `torchrun` say different things, or a lab option has no ranks to work on.
    """
    place = RankPlace.from_environment(os.environ)
    if place is not None and options.tp not in (None, place.size):
        raise ConfigError(f"{options.tp} ranks are asked for, and {place.size} were started", where="--tp",
                          fix="leave it out under torchrun")
    size = options.tp or 1 if place is None else place.size
    if size == 1 and (options.disturb_rank is not None or not options.token_sync):
        raise ConfigError("one process has nobody to agree with", fix="add --tp N",
                          where="--no-token-sync" if options.disturb_rank is None else "--disturb-rank")
    if options.disturb_rank is not None and options.disturb_rank >= size:
        raise ConfigError(f"there is no rank {options.disturb_rank} of {size}", where="--disturb-rank",
                          fix=f"use 0 to {size - 1}")
    return place


def start_ranks(config: EngineConfig, size: int, words: Sequence[str], progress: ProgressLine) -> int:
    """Run this very command line as `size` ranks; returns the exit code.

    Raises:
        JumpforwardError: they could not work; said here, once, before any is started.
    """
    from shared_runtime.assembly import check_ranks
    from shared_runtime.execution.launch import launch

    try:
        check_ranks(config, size, progress)
    except ConfigError as error:
        raise ConfigError(error.message, fix=error.fix,
                          where="--tp" if error.where == "ranks" else error.where) from None
    progress.clear()
    return launch([sys.executable, "-m", "jumpforward", *words], size,
                  say=lambda line: print(f"error: {line}", file=sys.stderr, flush=True))


def parallel_engine(config: EngineConfig, place: RankPlace, options: RankOptions,
                    progress: ProgressLine | None) -> tuple[ParallelEngine, TorchRankGroup]:
    """This rank's engine, and the group it talks in.

    Raises:
        JumpforwardError: the others did not come, or the settings do not work.
    """
    from shared_runtime.execution.disturbance import disturb
    from shared_runtime.execution.parallel_engine import ParallelEngine
    from shared_runtime.execution.rank_group import TorchRankGroup

    # A rank may wait for another's compile.
    group = TorchRankGroup.connect(config.torch_device, place, timeout_s=60.0 + config.limits.compile_timeout)
    if place.rank > 0:
        config = replace(config, trace=None)  # one rank writes it
    engine = ParallelEngine(config, group, progress=progress)
    if options.disturb_rank == place.rank:
        disturb(engine.parts.runner, seed=config.seed)
    return engine, group


def follow(config: EngineConfig, place: RankPlace, options: RankOptions) -> int:
    """What every rank but the first does: as it is told. Its results are rank 0's, which shows them."""
    from shared_runtime.execution.rank_group import RankDivergenceError

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 decides what Ctrl-C means
    try:
        engine, group = parallel_engine(config, place, options, None)
        with group:
            engine.follow()
    except RankDivergenceError:  # rank 0 says the same
        return REQUEST_ERROR
    except JumpforwardError as error:
        print(f"rank {place.rank}: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        return USAGE_ERROR if isinstance(error, ConfigError) else REQUEST_ERROR
    return OK


def note_on_ranks(group: TorchRankGroup) -> str:
    """How it went, for the summary."""
    backend = "NCCL" if group.device.type == "cuda" else "gloo"
    return f"ranks           {group.size} over {backend}; they differed on {group.overruled} of {group.agreed} tokens"
