"""What is graded: several jumps, other sizes, the museum's own check."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import (
    answers_go_on_where_they_were,
    the_grammar_is_where_the_text_is,
    the_museum_is_content,
    what_was_written_stays,
)

JSON = '\\{"name": "[a-z]{3}", "age": [0-9]{2}\\}'

CASES = [
    *each(the_grammar_is_where_the_text_is, {
        "nothing written": (JSON, []),
        "two jumps": (JSON, ["", "nam", "4"]),
        "retracted right behind a jump": ("[a-z]{3}-middle-[a-z]{12}", ["xyz"]),
        "many letters behind a jump": ("[a-z]{3}-middle-[a-z]{12}", ["xyz", "q", "r", "s", "t"]),
    }),
    *each(what_was_written_stays, {"what was sent, two jumps behind": (JSON, ["", "nam", "4"]),
                                   "what was sent before any jump": (JSON, [])}),
    Case("the museum's row 6 with your policy", the_museum_is_content),
    *each(answers_go_on_where_they_were, {
        "stage 2, four requests": ("[a-z]{3}-middle-[a-z]{12}", 4, 40),
        "stage 2, a little more memory": ("[a-z]{3}-middle-[a-z]{12}", 4, 48),
    }),
]
