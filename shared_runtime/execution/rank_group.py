"""Processes that run one model together, and the few ways in which they talk.

Every rank runs the same loop on the same requests. What could differ between them is agreed on here: sums of partial
products, the pieces of the logits, and decisions that depend on time (which requests have come, which grammars are
ready).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from shared_runtime.errors import ConfigError, EngineStateError
from shared_runtime.execution.rank_place import RankPlace

T = TypeVar("T")

AGREE_ON_IDS = "sampled ids are agreed on only while a request has a grammar, and sync_token_ids is on"


class RankLostError(EngineStateError):
    """Another rank was killed, has failed, or did not answer in time."""


class RankDivergenceError(EngineStateError):
    """Ranks that should be the same are not: their next collective call would hang or mix up data."""


class RankGroup(Protocol):
    """The ranks of one tensor-parallel model. Every rank must make the same calls in the same order."""

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...

    def sum(self, tensor: Tensor) -> Tensor:
        """The elementwise sum over all ranks; the same bits on each."""
        ...

    def join(self, tensor: Tensor) -> Tensor:
        """[..., n] on each rank -> [..., n * size] on every rank, in rank order."""
        ...

    def lowest(self, ids: list[int]) -> list[int]:
        """The elementwise minimum over all ranks: how sampled ids are agreed on."""
        ...

    def from_first(self, value: T) -> T:
        """Rank 0's value, on every rank. Only plain data of this project's own making is sent."""
        ...

    def from_each(self, value: T) -> list[T]:
        """Every rank's value, in rank order, on every rank."""
        ...


class SingleRank:
    """One process alone: nothing to agree on."""

    rank = 0
    size = 1

    def sum(self, tensor: Tensor) -> Tensor:
        """The tensor itself."""
        return tensor

    def join(self, tensor: Tensor) -> Tensor:
        """The tensor itself."""
        return tensor

    def lowest(self, ids: list[int]) -> list[int]:
        """The ids themselves."""
        return ids

    def from_first(self, value: T) -> T:
        """The value itself."""
        return value

    def from_each(self, value: T) -> list[T]:
        """A list of the one value."""
        return [value]


@dataclass(slots=True)
class TorchRankGroup:
    """`RankGroup` over `torch.distributed`: NCCL for tensors on a GPU, gloo on a CPU and for everything else.

    Attributes:
        device: where tensors live. rank, size: this process's number, and how many there are.
        control: a gloo group of its own, for decisions: a forward pass on another thread talks in the default group
            at the same time, and two threads' messages in one group would be taken for each other's.
        sampling: another, for sampled ids: who samples may be on that thread, too.
        agreed: ids that were agreed on so far. overruled: those of them about which the ranks were not of one mind.
    """

    device: torch.device
    rank: int
    size: int
    control: dist.ProcessGroup
    sampling: dist.ProcessGroup
    agreed: int = 0
    overruled: int = 0

    @classmethod
    def connect(cls, device: torch.device, place: RankPlace, *, timeout_s: float = 60.0) -> TorchRankGroup:
        """Meet the other ranks; on CUDA this process then works on the GPU of its place.

        Args:
            device: where tensors live. place: which rank this is, and where they meet.
            timeout_s: a rank that does not answer for so long ends the others with an error: no rank waits for
                ever for one that was killed or has lost its way.

        Raises:
            ConfigError: this machine has no GPU for this rank.
            EngineStateError: the others did not come.
        """
        if device.type == "cuda":
            if place.local_rank >= torch.cuda.device_count():
                raise ConfigError(f"rank {place.rank} has no GPU of its own: this machine has "
                                  f"{torch.cuda.device_count()}", where="ranks", fix="use fewer ranks, or --device cpu")
            torch.cuda.set_device(place.local_rank)
        timeout = datetime.timedelta(seconds=timeout_s)
        backend = "nccl" if device.type == "cuda" else "gloo"
        try:
            dist.init_process_group(backend, init_method=place.address, rank=place.rank, world_size=place.size,
                                    timeout=timeout)
            control, sampling = (dist.new_group(backend="gloo", timeout=timeout) for _ in range(2))
        except (RuntimeError, ValueError) as error:
            raise EngineStateError(f"rank {place.rank} of {place.size} could not meet the others: {error}",
                                   where=place.address) from error
        if control is None or sampling is None:
            raise EngineStateError(f"rank {place.rank} is not in its own group", where=place.address)
        return cls(device, place.rank, place.size, control, sampling)

    def sum(self, tensor: Tensor) -> Tensor:
        """All-reduce, in place on a tensor that nobody else uses."""
        whole = tensor.contiguous()
        with self._talking():
            dist.all_reduce(whole)
        return whole

    def join(self, tensor: Tensor) -> Tensor:
        """All-gather along the last dimension."""
        pieces = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self.size)]
        with self._talking():
            dist.all_gather(pieces, tensor.contiguous())
        return torch.cat(pieces, dim=-1)

    def lowest(self, ids: list[int]) -> list[int]:
        """All-reduce with MIN: any rule that all ranks can compute would do; upstream took this one (#3060)."""
        # Beside each id its negative, whose minimum tells the highest: one message says both what and whether.
        both = torch.tensor([ids, [-one for one in ids]], dtype=torch.int64)
        with self._talking():
            dist.all_reduce(both, op=dist.ReduceOp.MIN, group=self.sampling)
        lowest: list[int] = both[0].tolist()
        self.agreed += len(ids)
        self.overruled += int((both[0] != -both[1]).sum())
        return lowest

    def from_first(self, value: T) -> T:
        """Broadcast from rank 0."""
        box: list[T] = [value]
        with self._talking():
            dist.broadcast_object_list(box, src=0, group=self.control)
        return box[0]

    def from_each(self, value: T) -> list[T]:
        """All-gather of objects."""
        boxes: list[T] = [value] * self.size
        with self._talking():
            dist.all_gather_object(boxes, value, group=self.control)
        return boxes

    def leave(self) -> None:
        """Part from the others. They find the connection closed when they wait for this rank now."""
        dist.destroy_process_group()

    def __enter__(self) -> TorchRankGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        # Threads that still hold connections would end the process by a signal when Python shuts down. NCCL however
        # waits for what is under way, which after an error may be for ever: there the process just ends.
        if error is None or self.device.type == "cpu":
            self.leave()

    @contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # what torch raises when the other end is gone, or silent for too long
            # Gloo's text begins with a place in its source and ends with good wishes.
            reason = str(error).splitlines()[0].split("] ", 1)[-1].split(". ")[0]
            raise RankLostError(f"rank {self.rank} lost the others: {reason}", where="ranks",
                                fix="look at what the other ranks printed, and start all of them again") from error
