"""`python -m benchmarks.weight_error`: what bf16 and 8-bit weights change in the logits of a text.

The same text, the prose in which the workloads are explained, is read by fp32 and by each of the others, some positions
at a time: up to four go through the kernel for 8-bit weights, more of them through the product of the rounded weights.
How the error reads: the difference of a logit, and how often the likeliest token is still the same one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.ledger import Ledger
from benchmarks.report import table as markdown
from benchmarks.workloads import all_workloads
from shared_runtime.config import DtypeName, EngineConfig
from shared_runtime.engine import Engine
from shared_runtime.forward_batch import ForwardBatch, ForwardMode
from shared_runtime.model.linear_kind import WeightsName

_AT_ONCE = (256, 4)
_KINDS: tuple[tuple[DtypeName, WeightsName], ...] = (("bf16", "auto"), ("bf16", "int8"))


@dataclass(frozen=True, slots=True)
class WeightErrorRow:
    """One kind of weights beside fp32.

    Attributes:
        dtype, weights: of the model. at_once: positions in a pass. positions: of the text, all told.
        mean, largest: of the absolute difference of a logit. same_token: share of positions with the same likeliest
            token. nll, nll_fp32: nats a token of the text.
    """

    dtype: str
    weights: str
    at_once: int
    positions: int
    mean: float
    largest: float
    same_token: float
    nll: float
    nll_fp32: float


def logits_of(engine: Engine, ids: Sequence[int], at_once: int) -> Tensor:
    """[len(ids), width] float32 on the CPU: a text's logits, read `at_once` positions a pass on an idle engine.

    Raises:
        ValueError: the engine's memory is too small.
    """
    memory = engine.parts.memory
    memory.cache.reset()
    slots, row = memory.pool.alloc(len(ids)), memory.tables.alloc()
    try:
        if slots is None or row is None:
            raise ValueError(f"no room for {len(ids)} tokens")
        memory.tables.table[row, :len(ids)] = slots
        found = []
        for start in range(0, len(ids), at_once):
            end = min(start + at_once, len(ids))
            fed = end - start
            found.append(engine.parts.runner.forward(ForwardBatch(
                mode=ForwardMode.EXTEND, input_ids=torch.tensor(ids[start:end]), positions=torch.arange(start, end),
                out_slots=slots[start:end], table_rows=torch.tensor([row]), seq_lens=[end], extend_lens=[fed],
                logits_index=torch.arange(fed))).cpu())
        return torch.cat(found)
    finally:
        if slots is not None:
            memory.pool.free(slots)
        if row is not None:
            memory.tables.free(row)


def weight_errors(config: EngineConfig, text: str, at_once: Sequence[int] = _AT_ONCE) -> list[WeightErrorRow]:
    """The rows of every kind of weights; the model is a CPU's."""
    with Engine(replace(config, dtype="fp32", weights="plain")) as engine:
        ids = engine.tokenizer.encode(text)
        right = logits_of(engine, ids, max(at_once))
    rows = []
    for dtype, weights in _KINDS:
        with Engine(replace(config, dtype=dtype, weights=weights)) as engine:
            for count in at_once:
                found = logits_of(engine, ids, count)
                difference = (found - right).abs()
                rows.append(WeightErrorRow(
                    dtype, weights, count, len(ids), round(float(difference.mean()), 4),
                    round(float(difference.max()), 3),
                    round(float((found.argmax(-1) == right.argmax(-1)).double().mean()), 4), _nll(found, ids),
                    _nll(right, ids)))
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """As Markdown."""
    return markdown(
        ("weights", "positions at once", "mean error of a logit", "largest", "same likeliest token", "nats a token",
         "in fp32"),
        [(row["dtype"] if row["weights"] == "auto" else row["weights"], str(row["at_once"]), f"{row['mean']:.3f}",
          f"{row['largest']:.2f}", f"{100 * row['same_token']:.1f} %", f"{row['nll']:.3f}", f"{row['nll_fp32']:.3f}")
         for row in rows])


def _nll(logits: Tensor, ids: Sequence[int]) -> float:
    """Nats a token of the text behind its first."""
    return round(float(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]))), 4)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weight_error", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write this file, too")
    given = parser.parse_args(arguments)
    text = "\n\n".join(f"{one.why} {one.trap}" for one in all_workloads())
    rows = [asdict(row) for row in weight_errors(EngineConfig(model=given.model, kv_pool_tokens=2048), text)]
    print(table(rows))
    if given.json is not None:
        ledger = Ledger.begin("cpu", {})
        given.json.write_text(json.dumps({
            "command": "python -m benchmarks.weight_error --json FILE", "machine": ledger.machine,
            "packages": ledger.packages, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
