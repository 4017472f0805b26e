"""Where masks live: the one buffer of a batch, and the operation that fits the device it is on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from .torch_ops.bitmask_torch_ops import apply_token_bitmask, words_for
from .torch_ops.token_filter_torch_ops import set_token_filter


def new_bitmask(width: int, rows: int, device: torch.device) -> Tensor:
    """[rows, ceil(width / 32)] int32 with every bit set."""
    return torch.full((rows, words_for(width)), -1, dtype=torch.int32, device=device)


def apply_bitmask(logits: Tensor, mask: Tensor, rows: Sequence[int] | None = None) -> None:
    """-inf where a bit is 0, in place, in all rows or those listed: by Triton on CUDA, by torch on a CPU."""
    if logits.device.type == "cuda":
        from .triton_ops.bitmask_ops import apply_token_bitmask_triton  # here: a CPU has no Triton

        chosen = range(logits.shape[0]) if rows is None else rows
        # Pinned, or the copy of these few integers would wait for the forward pass.
        index = torch.tensor(chosen, dtype=torch.int64).pin_memory().to(logits.device, non_blocking=True)
        apply_token_bitmask_triton(logits, mask, index)
    else:
        apply_token_bitmask(logits, mask, rows)


def filter_tokens(mask: Tensor, row: int, token_ids: Iterable[int], *, allowed: bool, reset: bool = True) -> None:
    """Allow only `token_ids` in a row, or all but them: see `set_token_filter`. On CUDA without a round trip."""
    if mask.device.type == "cuda":
        from .triton_ops.token_filter_ops import set_token_filter_triton

        set_token_filter_triton(mask, row, token_ids, allowed=allowed, reset=reset)
    else:
        set_token_filter(mask, row, token_ids, allowed=allowed, reset=reset)


class MaskBuffer:
    """One packed mask for a batch, kept from step to step in host memory; pinned where it will be copied to CUDA.

    Invariant: after `rows` every bit is 1. Upstream kept buffers without that, and a free row then stayed bound by the
    request that had its place in an earlier step (museum row 61, until #23653).

    Args:
        width: of the logits. device: where the logits live.
    """

    def __init__(self, width: int, device: torch.device) -> None:
        self._width = width
        self._device = device
        self._host = self._allocate(0)
        self._copied: torch.cuda.Event | None = None

    def rows(self, count: int) -> Tensor:
        """[count, words] int32 in host memory, all ones, valid until the next call."""
        if self._copied is not None:
            self._copied.synchronize()  # the last step's copy may still read
            self._copied = None
        if count > self._host.shape[0]:
            self._host = self._allocate(max(count, 2 * self._host.shape[0]))
        return self._host[:count].fill_(-1)

    def sent(self) -> None:
        """The mask is on its way to the device; its memory must not be written before it has arrived."""
        if self._device.type == "cuda":
            self._copied = torch.cuda.current_stream(self._device).record_event()

    def _allocate(self, rows: int) -> Tensor:
        # A tensor made in inference mode could not be written outside of it, where a mask may be asked for too.
        with torch.inference_mode(False):
            host = new_bitmask(self._width, rows, torch.device("cpu"))
            return host.pin_memory() if self._device.type == "cuda" else host
