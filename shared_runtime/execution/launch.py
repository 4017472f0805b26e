"""Starts one process for each rank and looks after them: what `torchrun` does, as far as one machine needs it.

A rank that dies takes the others with it. They notice by themselves as a rule, since the connection breaks; a rank that
does not, because it waits on a GPU for a message that will never come, is ended here after a few seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from shared_runtime.execution.rank_place import MEETING_VARIABLE

Say = Callable[[str], None]
_LOOK_S = 0.05


def launch(command: Sequence[str], size: int, *, say: Say, grace_s: float = 5.0) -> int:
    """Run `command` as ranks 0..size-1 and wait for all of them.

    Rank 0 has this process's input and output. The others share its standard error alone: they speak when they fail.
    Ctrl-C reaches all of them, as they are of one process group; rank 0 decides what it means.

    Args:
        command: program and arguments; the same for every rank. size: how many ranks.
        say: told in one line when a rank was killed, or had to be.
        grace_s: how long the others may take to end by themselves once one has failed.

    Returns:
        0 when all ranks did well; else rank 0's exit code where it has failed by itself, else 1.
    """
    with tempfile.TemporaryDirectory(prefix="jumpforward-ranks-") as folder:
        place = {MEETING_VARIABLE: f"file://{Path(folder) / 'meeting'}", "WORLD_SIZE": str(size)}
        ranks: list[subprocess.Popen[bytes]] = []
        before = signal.signal(signal.SIGINT, _wait_on), signal.signal(signal.SIGTERM, _end)
        try:
            for rank in range(size):
                own = place | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                quiet = None if rank == 0 else subprocess.DEVNULL
                ranks.append(subprocess.Popen(command, env=os.environ | own, stdin=quiet, stdout=quiet))
            return _watch(ranks, say, grace_s)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
            signal.signal(signal.SIGINT, before[0])
            signal.signal(signal.SIGTERM, before[1])


def _watch(ranks: Sequence[subprocess.Popen[bytes]], say: Say, grace_s: float) -> int:
    """Wait until all have ended; end what is left some seconds after the first failure."""
    deadline: float | None = None
    while True:
        codes = [process.poll() for process in ranks]
        failed = next((rank for rank, code in enumerate(codes) if code), None)
        if failed is not None and deadline is None:
            deadline = time.monotonic() + grace_s
            killed = next((rank for rank, code in enumerate(codes) if code is not None and code < 0), None)
            if killed is not None:
                say(f"rank {killed} was killed by signal {-(codes[killed] or 0)}; the others end too")
        if None not in codes:
            break
        if deadline is not None and time.monotonic() > deadline:
            left = ", ".join(str(rank) for rank, code in enumerate(codes) if code is None)
            say(f"rank {left} did not notice in {grace_s:g} s that another had failed, and was ended")
            return max(codes[0] or 0, 1)
        time.sleep(_LOOK_S)
    return max(codes[0] or 0, 1) if any(codes) else 0


def _wait_on(_number: int, _frame: object) -> None:
    """Ctrl-C is for the ranks. A function, since a signal that is ignored outright would be so in them too."""


def _end(_number: int, _frame: object) -> None:
    """SIGTERM unwinds the stack, so that no rank is left behind."""
    sys.exit(128 + signal.SIGTERM)
