"""Runs a function on several ranks, each a process of its own, and brings their answers back."""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from shared_runtime.execution.rank_group import TorchRankGroup
from shared_runtime.execution.rank_place import RankPlace

Body = Callable[..., Any]


def run_on_ranks(size: int, body: Body, *arguments: object, timeout_s: float = 120.0) -> list[Any]:
    """`body(group, *arguments)` on `size` gloo ranks; their return values in rank order.

    `body` must be a function of a module, and everything must pickle; tensors must come back as arrays, since a
    tensor's memory goes with its process. A rank that raises fails the test with its
    traceback; one that hangs is killed after `timeout_s`.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        address = f"file://{Path(folder) / 'meeting'}"
        pipes = [context.Pipe(duplex=False) for _ in range(size)]
        ranks = [context.Process(target=_rank, args=(rank, size, address, pipes[rank][1], body, arguments), daemon=True)
                 for rank in range(size)]
        for process, (_, sending) in zip(ranks, pipes, strict=True):
            process.start()
            sending.close()  # so that a rank's death ends its pipe
        try:
            answers = [_answer(process, pipes[rank][0], rank, timeout_s) for rank, process in enumerate(ranks)]
        finally:
            for process in ranks:
                process.kill()
                process.join()
    return answers


def _answer(process: multiprocessing.process.BaseProcess, pipe: Connection, rank: int, timeout_s: float) -> Any:
    if not pipe.poll(timeout_s):
        raise AssertionError(f"rank {rank} gave no answer in {timeout_s:g} s (alive: {process.is_alive()})")
    try:
        failed, answer = pipe.recv()
    except EOFError:
        raise AssertionError(f"rank {rank} died") from None
    if failed:
        raise AssertionError(f"rank {rank} failed:\n{answer}")
    return answer


def _rank(rank: int, size: int, address: str, pipe: Connection, body: Body, arguments: tuple[object, ...]) -> None:
    torch.set_num_threads(1)
    try:
        group = TorchRankGroup.connect(torch.device("cpu"), RankPlace(rank, size, rank, address), timeout_s=30.0)
        answer = body(group, *arguments)
    except BaseException:
        pipe.send((True, traceback.format_exc()))
        return
    pipe.send((False, answer))
    group.leave()
