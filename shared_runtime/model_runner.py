"""Runs the model: a batch of tokens in, logits out."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from shared_runtime.attention import LayerAttention, PagedAttention
from shared_runtime.execution.decode_graphs import DecodeGraphs
from shared_runtime.execution.flash_attention import FlashAttention
from shared_runtime.execution.rank_group import RankGroup
from shared_runtime.forward_batch import ForwardBatch
from shared_runtime.memory_pool import ReqToTokenPool, TokenToKVPool
from shared_runtime.model.config import ModelConfig
from shared_runtime.model.decoder import Decoder
from shared_runtime.model.dummy import dummy_weights
from shared_runtime.model.linear_kind import WeightsName, check_weights, linear_kind
from shared_runtime.model.shard import local_config, local_weights
from shared_runtime.model.weights import load_weights

LoadFormat = Literal["auto", "dummy"]


def load_model(folder: Path, *, dtype: torch.dtype, device: torch.device, exact: bool,
               load_format: LoadFormat = "auto", group: RankGroup | None = None,
               weights: WeightsName = "auto") -> tuple[ModelConfig, Decoder]:
    """Read a Hugging Face model folder.

    Args:
        folder: holds config.json, and unless `load_format` is "dummy" the safetensors files.
        dtype: of weights, activations, keys and values.
        device: where the model runs.
        exact: a token's logits then depend on its request's tokens alone, to the bit.
        load_format: "dummy" makes random weights of the same shape.
        group: the ranks that share the model; None for one process alone.
        weights: how they are held, as `linear_kind` takes it.

    Returns:
        The shape of the model, or of this rank's share, and the decoder.

    Raises:
        CheckpointError: the folder has a fault; the error names file and field or tensor.
        ConfigError: so many ranks cannot share this model, or these `weights` do not go with the other settings.
    """
    config = ModelConfig.from_folder(folder)
    check_weights(weights, dtype=dtype, device=device, exact=exact)
    if load_format == "dummy":
        tensors = dummy_weights(config, dtype=dtype, device=device)
    else:
        tensors = load_weights(folder, config, dtype=dtype, device=device)
    if group is not None and group.size > 1:
        config, tensors = local_config(config, group.size), local_weights(tensors, group)
    kind = linear_kind(weights, tensors, exact=exact)
    return config, Decoder(config, tensors, exact=exact, kind=kind, group=group)


class ModelRunner:
    """A decoder with its memory.

    Attributes:
        config: the model's shape.
        decoder: the model.
        kv_pool: keys and values.
        req_to_token: which slots each request holds.
        forward_passes: passes run so far.
        flash: attention by FlashInfer, None for torch's own. graphs: recorded decode passes, None where there are none.
    """

    def __init__(self, config: ModelConfig, decoder: Decoder, kv_pool: TokenToKVPool, req_to_token: ReqToTokenPool, *,
                 flash: FlashAttention | None = None, graphs: DecodeGraphs | None = None) -> None:
        self.config = config
        self.decoder = decoder
        self.kv_pool = kv_pool
        self.req_to_token = req_to_token
        self.forward_passes = 0
        self.flash = flash
        self.graphs = graphs
        self._attention = PagedAttention(kv_pool=kv_pool, req_to_token=req_to_token, exact=decoder.exact)

    def forward(self, batch: ForwardBatch) -> Tensor:
        """Run one pass; the new tokens' keys and values are in the pool afterwards.

        Returns:
            [R, width] float32, one row for each entry of `batch.logits_index`.
        """
        # Inference mode belongs to a thread, so it is entered here, in whichever thread runs the pass.
        with torch.inference_mode():
            logits = None if self.graphs is None else self.graphs.run(batch)
            if logits is None:
                logits = self.decoder.forward(batch, self._plan(batch))
        self.forward_passes += 1
        return logits

    def _plan(self, batch: ForwardBatch) -> LayerAttention:
        if self.flash is not None:
            return self.flash.plan(batch)
        return self._attention.plan(batch, self.decoder.dtype)
