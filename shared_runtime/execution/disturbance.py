"""The divergence lab: makes one rank compute a little differently, so that one can see what ranks owe to their sync.

Ranks of one model do round differently in earnest, on other hardware or in another order of addition; then seldom, and
by the last bit. Here it is noise that anybody can see.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.model_runner import ModelRunner


def disturb(runner: ModelRunner, *, seed: int, scale: float = 3.0) -> None:
    """From now on, noise of standard deviation `scale` is added to every logit of this process, and of no other."""
    undisturbed = runner.forward
    noise = torch.Generator().manual_seed(seed)

    def forward(batch: ForwardBatch) -> Tensor:
        logits = undisturbed(batch)
        return logits + scale * torch.randn(logits.shape, generator=noise).to(logits.device)

    runner.forward = forward  # type: ignore[method-assign]  # what a rank that rounds differently does
