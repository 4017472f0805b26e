"""What is graded: prefixes of all lengths, random company, small pools."""

from __future__ import annotations

import random

from exercises.bench import each

from .common import all_is_the_caches, stage_2_runs


def random_asks(seed: int) -> list[tuple[list[int], list[int]]]:
    """Up to four requests over three letters: they share much."""
    chance = random.Random(seed)
    return [(chance.choices((5, 6, 7), k=chance.randint(1, 5)), chance.choices((5, 6, 7), k=chance.randint(1, 5)))
            for _ in range(chance.randint(2, 4))]


CASES = [
    *each(all_is_the_caches, {
        "a prompt of one token, and nothing written": ([([5], [6])], False),
        "one text is the beginning of another": ([([5, 6], [7]), ([5, 6], [7, 8, 9])], True),
        "the longer one first": ([([5, 6], [7, 8, 9]), ([5, 6], [7])], True),
        "texts that part in the middle": ([([5, 6, 7], [8]), ([5, 6, 9], [8])], True),
        "three of the same": ([([5, 6, 7], [8, 9])] * 3, True),
        **{f"random company, seed {seed}": (random_asks(seed), bool(seed % 2)) for seed in range(8)},
    }),
    *each(stage_2_runs, {
        "stage 2, three equal requests": ("[a-z]{2}: true, false", 3),
        "stage 2, several jumps each": ('\\{"name": "[a-z]{1,3}", "age": [0-9]{2}\\}', 2),
    }),
]
