"""What is graded: other patterns, random ones, and vocabularies that the learner has not seen."""

from __future__ import annotations

import random

from exercises.bench import each
from shared_runtime.vocabulary import Vocabulary
from tests.museum.bench import vocabulary_of

from .common import BYTES, an_engine_answers, the_index_is_that_of_stage_1


def random_vocabulary(seed: int) -> Vocabulary:
    """Every byte, and random pieces of a text; several stop tokens."""
    chance = random.Random(seed)
    text = "abcabc 0123 ééèü 霍格沃兹 \"name\": {}".encode()
    pieces = [text[start:start + chance.randint(2, 5)] for start in chance.sample(range(len(text) - 5), 25)]
    return vocabulary_of(*(bytes([byte]) for byte in range(256)), *dict.fromkeys(pieces), stops=chance.randint(1, 4))


LONG = vocabulary_of(b"ab", b"abab", "é".encode(), b"1", b"\xc3", b"\xa9")

CASES = [
    *each(the_index_is_that_of_stage_1, {
        "an optional tail": ("ab(cde)?", BYTES),
        "wildcards over all of UTF-8": (".{2}", BYTES),
        "a class that is not ASCII": ("[à-ÿ]+x?", BYTES),
        "four-byte characters": ("[😀-😄]{1,2}", BYTES),
        "counted repeats": ("(a|bc){2,4}", BYTES),
        "tokens of several bytes only": ("(ab|é)+1", LONG),
        "JSON": ('\\{"name": "[a-z]{1,3}", "age": [0-9]{1,2}\\}', BYTES),
        **{f"random tokens, seed {seed}": (pattern, random_vocabulary(seed)) for seed, pattern in enumerate(
            ("(ab|abc)*", "[0-9]{1,3}( [0-9]{1,3})*", "[éèü]{2}", "霍格沃兹|霍比特人", '"(name|nam)": [a-c0-3]{2}'))},
    }),
    *each(an_engine_answers, {
        "stage 1 with your index, digits": ("[0-9]{4}",),
        "stage 1 with your index, characters of two bytes": ("[éè]{3}",),
    }),
]
