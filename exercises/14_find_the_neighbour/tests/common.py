"""Steps of a batch, and the checks of exercise 14."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from exercises.bench import bench, in_place
from jumpforward.exercises.case import Row, expect
from stages.stage5_backend_jump import decoder
from stages.stage5_backend_jump.base_grammar_backend import BaseGrammarObject
from stages.stage5_backend_jump.utils import apply_bitmask
from tests.conformance.harness import Ask
from tests.museum.jumps import ask

CPU = torch.device("cpu")


def rows_that_nobody_fills_allow_all(part: type, width: int, steps: Sequence[Sequence[int]]) -> None:
    """Steps of (number of rows, rows that are filled ...)."""
    buffer = part(width, CPU)
    for number, (count, *filled) in enumerate(steps):
        mask = buffer.rows(count)
        expect(type(mask) is Tensor, f"rows({count}) must be a tensor, and is a {type(mask).__name__}")
        expect(tuple(mask.shape) == (count, -(-width // 32)), f"rows({count}) has shape {tuple(mask.shape)}")
        told = "in the first step" if number == 0 else f"after the steps {list(steps[:number])} (rows, those filled)"
        for row in range(count):
            still = int((mask[row] != -1).sum())
            expect(still == 0, f"{told}: rows({count}): row {row} {'still forbids' if number else 'forbids'} something "
                               f"(in {still} of its {mask.shape[1]} words), and nobody has filled it")
        for row in filled:
            mask[row] = 0
        buffer.sent()


def the_memory_is_kept(part: type) -> None:
    """No new tensor in each step."""
    buffer = part(64, CPU)
    places = {buffer.rows(4).data_ptr() for _ in range(8)}
    expect(len(places) == 1, f"eight steps with four rows use {len(places)} pieces of memory; the buffer is to be kept")


def a_free_neighbour_says_what_it_says_alone(part: type, running: int) -> None:
    """The museum's scenario, in stage 5: a constrained request ends, a free one takes its place."""
    bound = [ask("[0-9]{30}", max_new_tokens=40), *[ask("[0-9]", max_new_tokens=40)] * (running - 1)]
    with (bench() as made, in_place(decoder, "MaskBuffer", part),
          in_place(BaseGrammarObject, "apply_vocab_mask", _to_every_row)):
        engine = made.engine(5, backend="outlines", max_running_requests=running)
        made.run(engine, bound)
        free = made.run(engine, [*bound, Ask("y")])[-1]
        alone = made.run(made.engine(1), [Ask("y")])[0]
    expect(free.text == alone.text,
           f"in stage 5, behind {running} constrained requests: a free one says {free.text!r}, alone {alone.text!r}")


def _to_every_row(grammar: BaseGrammarObject, logits: Tensor, mask: Tensor, rows: Sequence[int]) -> None:
    """As upstream did; our stage 5 leaves rows without a grammar out, which would hide the fault."""
    apply_bitmask(logits, mask)


def picture(part: type) -> list[Row]:
    """Two steps: rows 0 and 1 are filled, then row 0 alone."""
    buffer, drawn = part(32, CPU), []
    for number, (count, filled) in enumerate(((2, (0, 1)), (2, (0,)), (3, (0,)))):
        mask = buffer.rows(count)
        for row in range(count):
            drawn.append(Row(f"step {number + 1}, row {row}, as it is given out",
                             "all allowed" if int(mask[row, 0]) == -1 else "something forbidden", "all allowed"))
        for row in filled:
            mask[row] = 0
    return drawn
