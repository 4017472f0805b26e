"""What is graded: other seams, half characters, the museum's own checks."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import stage_2_answers, the_ids_are_those_of_stage_2, the_museum_is_content

CASES = [
    *each(the_ids_are_those_of_stage_2, {
        "no prompt": ([], "name"),
        "no answer": ("x", ""),
        "a seam in the middle of a merge that is not made": ("n", "ab"),
        "behind a control token, no blank before it": ("a <|end|>", "b"),
        "in front of a control token only": ("a <|end|>x", "abc"),
        "a blank and another letter": ("x ", "age"),
        "three tokens grow together": ("ab", "c"),
        "characters of several bytes": ("é", "霍é"),
        "an answer with quotes": ("x", '"name": true'),
        "only control tokens, nothing behind": ([0, 1, 2], ""),
    }),
    Case("the museum's rows 17 and 19 on stage 2 with your function", the_museum_is_content),
    *each(stage_2_answers, {
        "stage 2, a prompt that ends in a blank": ("a ", "bbcde|bcde", "b"),
        "stage 2, several jumps": ("x", '\\{"name": "[a-z]{1,3}", "age": [0-9]{2}\\}', "nam"),
    }),
]
