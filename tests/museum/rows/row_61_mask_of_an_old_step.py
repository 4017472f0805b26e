"""Row 61: a mask is kept from step to step, and rows that nobody fills keep what they had."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from stages.stage4_backends.base_grammar_backend import BaseGrammarObject
from stages.stage5_backend_jump.utils import MaskBuffer
from tests.conformance.harness import Ask
from tests.museum.bench import Bench, hold
from tests.museum.exhibit import Exhibit, Injection
from tests.museum.jumps import ask

Allocate = Callable[[int, int, torch.device], Tensor]
"""(width, rows, device) -> the mask of a step; asked for once a step."""
MakeAllocate = Callable[[], Allocate]


def keeps_its_rows() -> Allocate:
    """Specimen of `allocate_vocab_mask`: one tensor for all steps of one batch size, ones at first."""
    kept: dict[tuple[int, int], Tensor] = {}

    def allocate(width: int, rows: int, device: torch.device) -> Tensor:
        if (width, rows) not in kept:
            with torch.inference_mode(False):
                kept[width, rows] = torch.full((rows, (width + 31) // 32), -1, dtype=torch.int32, device=device)
        return kept[width, rows]

    return allocate


def _buffer_of_stage5() -> Allocate:
    made: dict[int, MaskBuffer] = {}
    return lambda width, rows, device: made.setdefault(width, MaskBuffer(width, device)).rows(rows)


def a_row_that_nobody_fills_allows_all(make: MakeAllocate, bench: Bench) -> None:
    """Two constrained rows in one step, one in the next."""
    allocate, cpu = make(), torch.device("cpu")
    allocate(70, 2, cpu).fill_(0)
    second = allocate(70, 2, cpu)
    hold(bool((second == -1).all()), "a row is still bound by the request that had its place in the step before")


def scenario(bench: Bench) -> None:
    """A constrained request in the second row ends, and a free one takes its place."""
    engine = bench.engine(4, backend="outlines", max_running_requests=2)
    bound = [ask("[0-9]{30}", max_new_tokens=40), ask("[0-9]", max_new_tokens=40)]
    bench.run(engine, bound)  # compiles them: from now on they are ready at once, and run before the free one
    free = bench.run(engine, [*bound, Ask("y")])[2]
    alone = bench.run(bench.engine(1), [Ask("y")])[0]
    hold(free.text == alone.text, f"the free request says {free.text!r}, and {alone.text!r} when it is alone")


EXHIBIT: Exhibit[MakeAllocate] = Exhibit(
    61, keeps_its_rows, {"stage4": lambda: BaseGrammarObject.allocate_vocab_mask, "stage5": _buffer_of_stage5},
    a_row_that_nobody_fills_allows_all, "still bound by the request",
    Injection(BaseGrammarObject, "allocate_vocab_mask", staticmethod(keeps_its_rows()), scenario, "when it is alone"))
