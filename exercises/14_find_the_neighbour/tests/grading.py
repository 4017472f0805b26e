"""What is graded: growing and shrinking batches, and that the buffer is still one."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import a_free_neighbour_says_what_it_says_alone, rows_that_nobody_fills_allow_all, the_memory_is_kept

CASES = [
    *each(rows_that_nobody_fills_allow_all, {
        "a batch that grows": (70, [(1, 0), (3, 0, 1, 2), (7, 1)]),
        "a batch that shrinks and grows again": (70, [(4, 0, 1, 2, 3), (1, 0), (4,)]),
        "one word": (32, [(2, 0, 1), (2,)]),
        "many steps": (300, [(5, 0, 2, 4), (5, 1, 3), (3, 0), (5,)]),
    }),
    Case("the memory is kept", the_memory_is_kept),
    *each(a_free_neighbour_says_what_it_says_alone, {"the complaint, with three in front": (3,)}),
]
