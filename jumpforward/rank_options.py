"""How many processes share the model, and what the lab does to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

_RANKS = "Ranks: processes that share the model"


@dataclass(frozen=True, slots=True)
class RankOptions:
    """Tensor parallelism, and the divergence lab."""

    tp: Annotated[int | None, typer.Option(
        "--tp", rich_help_panel=_RANKS, metavar="N", min=1, show_default="1, or what torchrun started",
        help="Start N processes, each with its share of the heads; stages 4 and 5.")] = None
    token_sync: Annotated[bool, typer.Option(
        "--token-sync/--no-token-sync", rich_help_panel=_RANKS, metavar="",
        help="Agree on each sampled id when a request has a grammar.")] = True
    disturb_rank: Annotated[int | None, typer.Option(
        "--disturb-rank", rich_help_panel=_RANKS, metavar="R", min=0,
        help="The divergence lab: add noise to this rank's logits.")] = None
