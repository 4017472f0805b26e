"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import (
    a_guide_is_followed,
    a_schema_is_handed_over,
    nothing_is_imported_before_it_is_needed,
    picture,
    what_is_not_served_is_said,
)
from .fakes import earlier, installed, today, words

CASES = [
    *each(a_schema_is_handed_over, {
        "a schema as text, 0.1": (earlier(), '{"type": "null"}', " ?"),
        "a schema as text, 1": (today(), '{"type": "null"}', " ?"),
        "a schema as a dict, 0.1": (earlier(), {"type": "integer"}, ""),
        "a schema as a dict, 1": (today(), {"type": "integer"}, ""),
    }),
    Case("nothing is imported early", nothing_is_imported_before_it_is_needed),
    *each(a_guide_is_followed, {
        "a guide, 0.1": (earlier(), "ab|b", words("a", "b"), [3, 4]),
        "a guide, 1": (today(), "ab|b", words("a", "b"), [3, 4]),
        "the guide that is installed here": (installed(), "ab|b", words("a", "b"), [3, 4]),
    }),
    *each(what_is_not_served_is_said, {"older than 0.1": (earlier("0.0.46", "0.0.9"), "0.0.9")}),
]

__all__ = ["CASES", "picture"]
