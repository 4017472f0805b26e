"""Masks, logits and the checks of exercise 9. What is right is asked of stage 5's naive variant."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from exercises.bench import bench, in_place
from jumpforward.exercises.case import Row, expect, sides
from stages.stage5_backend_jump import utils
from stages.stage5_backend_jump.torch_ops.bitmask_torch_ops import naive_apply_token_bitmask, words_for
from tests.conformance.harness import Ask
from tests.museum.jumps import ask

Apply = Callable[[Tensor, Tensor, Sequence[int] | None], None]


def packed(allowed: Sequence[Sequence[int]], width: int, more_words: int = 0) -> Tensor:
    """A mask with these tokens allowed, all bits past the width set."""
    bits = torch.zeros((len(allowed), 32 * (words_for(width) + more_words)), dtype=torch.int64)
    bits[:, width:] = 1
    for row, ids in enumerate(allowed):
        bits[row, list(ids)] = 1
    words = (bits.view(len(allowed), -1, 32) << torch.arange(32)).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def the_logits_are_masked(part: Apply, allowed: Sequence[Sequence[int]], width: int, rows: Sequence[int] | None,
                          dtype: torch.dtype = torch.float32, more_words: int = 0) -> None:
    """Bit for bit what the naive variant makes of them."""
    generator = torch.Generator().manual_seed(width)
    logits = torch.randn((len(allowed), width), generator=generator).to(dtype)
    logits[:, 0], logits[:, width // 2], logits[:, -1] = -0.0, torch.nan, torch.inf
    mask = packed(allowed, width, more_words)
    wanted, got, before = logits.clone(), logits.clone(), mask.clone()
    naive_apply_token_bitmask(wanted, mask, rows)
    part(got, mask, rows)
    expect(torch.equal(mask, before), "it changed the bitmask, which is the caller's")
    listed = range(len(allowed)) if rows is None else rows
    names = [f"token {token_id}" for token_id in range(width)]
    for row in range(len(allowed)):
        if row not in listed:
            expect(_same(got[row], logits[row]), f"[{len(allowed)}, {width}] {dtype}, rows {rows}: row {row} is not "
                                                 "listed, and changed")
            continue
        where = f"[{len(allowed)}, {width}] {dtype}, row {row}"
        differs = sides(_open(got[row]), _open(wanted[row]), names)
        expect(not differs, f"{where}: {differs}")
        changed = [token_id for token_id in _open(wanted[row])
                   if not _same(got[row, token_id:token_id + 1], logits[row, token_id:token_id + 1])]
        expect(not changed, f"{where}: the logit of token {changed[:1]}, which is allowed, is no longer what it was")


def _open(row: Tensor) -> list[int]:
    return [int(token_id) for token_id in (row != -torch.inf).nonzero().flatten()]


def _same(one: Tensor, other: Tensor) -> bool:
    kind = torch.int32 if one.dtype is torch.float32 else torch.int16
    return torch.equal(one.view(kind), other.view(kind))


def random_rows(seed: int, rows: int, width: int) -> list[list[int]]:
    """Per row some ids, from none to all."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(rows, 1, generator=generator)
    bits = torch.rand((rows, width), generator=generator) < share
    return [row.nonzero().flatten().tolist() for row in bits]


def stage_5_answers(part: Apply, pattern: str) -> None:
    """A constrained request and a free one beside it, in stage 5."""
    asks = [ask(pattern, max_new_tokens=8), Ask("y")]
    with bench() as made:
        right = made.run(made.engine(5, backend="xgrammar"), asks)
        with in_place(utils, "apply_token_bitmask", part):
            got = made.run(made.engine(5, backend="xgrammar"), asks)
    for ours, theirs, who in zip(right, got, ("the request", "its free neighbour"), strict=True):
        expect(theirs.error is None, f"in stage 5, regex {pattern!r}: {who} ended with an error: {theirs.error}")
        expect(ours.token_ids == theirs.token_ids,
               f"in stage 5, regex {pattern!r}: {who} says {theirs.text!r}, expected {ours.text!r}")


def picture(part: Apply) -> list[Row]:
    """Three rows of 36 tokens; the second is not listed."""
    allowed, width = [[0, 3, 31], [], [32, 35]], 36
    mask = packed(allowed, width)
    wanted, got = torch.zeros((3, width)), torch.zeros((3, width))
    naive_apply_token_bitmask(wanted, mask, [0, 2])
    part(got, mask, [0, 2])
    return [Row(f"row {row}{'' if row != 1 else ' (not listed)'}", _drawn(got[row]), _drawn(wanted[row]))
            for row in range(3)]


def _drawn(row: Tensor) -> str:
    return "".join("." if value == -torch.inf else "#" for value in row)
