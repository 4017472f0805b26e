"""What is graded: dead ends further away, circles, the museum's own check, both stop tokens."""

from __future__ import annotations

import random

from exercises.bench import each
from jumpforward.exercises.case import Case
from shared_runtime.vocabulary import Vocabulary

from .common import (
    an_answer_ends_where_it_may,
    an_impossible_regex_is_refused,
    letters,
    the_masks_are_those_of_stage_1,
    the_museum_is_content,
)


def random_letters(seed: int) -> Vocabulary:
    """Some letters and some pairs; others are missing."""
    chance = random.Random(seed)
    single = [bytes([byte]) for byte in chance.sample(b"abcdef", 4)]
    pairs = {bytes(chance.choices(b"abcdef", k=2)) for _ in range(8)}
    return letters(*single, *sorted(pairs), stops=chance.randint(1, 3), padding=chance.randint(0, 40))


CASES = [
    *each(the_masks_are_those_of_stage_1, {
        "a dead end three tokens ahead": ("aabx|b", letters(b"a", b"b")),
        "a circle that never ends": ("a(b)*x|c", letters(b"a", b"b", b"c")),
        "a way out by a longer token only": ("axb|c", letters(b"a", b"b", b"c", b"xb")),
        "half characters without their other half": ("é|è|e", letters(b"e", b"\xc3", b"\xa9")),
        "the empty text": ("(ab)?", letters(b"a", b"b")),
        "four stop tokens": ("a|b", letters(b"a", b"b", stops=4)),
        **{f"random tokens, seed {seed}": ("[a-c]{2,4}|d[ef]*a|(ab|cd)+", random_letters(seed)) for seed in range(6)},
    }),
    *each(an_impossible_regex_is_refused, {
        "a circle without a way out": ("a+x", letters(b"a", b"b")),
        "a character of which a byte is missing": ("é", letters(b"\xc3", b"e")),
    }),
    Case("the museum's row 2 on stage 1 with your masks", the_museum_is_content),
    *each(an_answer_ends_where_it_may, {
        "stage 1, the other stop token": ("a{1,40}", 1), "stage 1, no end before the fourth digit": ("[0-9]{4}", 0)}),
]
