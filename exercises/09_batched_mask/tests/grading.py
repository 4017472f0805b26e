"""What is graded: other types, sizes and rows, random masks, whole answers."""

from __future__ import annotations

import torch

from exercises.bench import each

from .common import random_rows, stage_5_answers, the_logits_are_masked

RANDOM = ((64, None), (65, [0, 4]), (95, [1, 2, 3]), (300, None), (1025, [4]))

CASES = [
    *each(the_logits_are_masked, {
        "no row is listed": ([[], []], 40, []),
        "rows in another order": ([[1], [2], [3]], 40, [2, 0]),
        "nothing is allowed": ([[]], 33, None),
        "everything is allowed": ([list(range(70))], 70, None),
        "more words than needed": ([[1, 69]], 70, None, torch.float32, 3),
        "bfloat16": ([[0, 31, 40], [7]], 41, None, torch.bfloat16),
        "float16": ([[0, 31, 40], [7]], 41, [1], torch.float16),
        **{f"random masks, seed {seed}": (random_rows(seed, 5, width), width, rows)
           for seed, (width, rows) in enumerate(RANDOM)},
    }),
    *each(stage_5_answers, {"stage 5, characters of two bytes": ("[éè]{3}",),
                            "stage 5, a choice of words": ("(nam|age|abc)",)}),
]
