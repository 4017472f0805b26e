"""What is graded: other releases, tokens that spell the same, special tokens, the installed library, stage 3."""

from __future__ import annotations

from exercises.bench import each

from .common import (
    a_guide_is_followed,
    a_schema_is_handed_over,
    stage_3_takes_your_schemas,
    what_is_not_served_is_said,
)
from .fakes import Library, earlier, installed, today, words

SAME = words("a", "Ġa", "▁a", "b", "ab")
LIKE_THE_END = words("<", "|", "im_end", ">", "<|")

CASES = [
    *each(a_guide_is_followed, {
        "tokens that spell the same, 0.1": (earlier(), "a( a)?b", SAME, [3, 5, 6]),
        "tokens that spell the same, 1": (today(), "a( a)?b", SAME, [3, 4, 6]),
        "the end of one text goes on, 0.1": (earlier("0.1.0", "0.1.14"), "a(b|ab)*", SAME, [3, 7, 6]),
        "the end of one text goes on, 1": (today("1.0.0", "0.2.11"), "a(b|ab)*", SAME, [3, 7, 6]),
        "a text like that of a special token, 0.1": (earlier(), r"<\|im_end\|>|<", LIKE_THE_END, [7, 5, 4, 6]),
        "a text like that of a special token, 1": (today(), r"<\|im_end\|>|<", LIKE_THE_END, [7, 5, 4, 6]),
        "a release that is not out yet": (today("1.12.0", "0.10.1"), "a?b", SAME, [3, 6]),
        "a far one": (today("12.0.1", "3.0.0"), "a?b", SAME, [3, 6]),
        "installed: tokens that spell the same": (installed(), "a( a)?b", SAME, [3, 5, 6]),
        "installed: a text like that of a special token": (installed(), r"<\|im_end\|>", LIKE_THE_END, [7, 5, 4, 6]),
    }),
    *each(a_schema_is_handed_over, {
        "a dict with quotes, 0.1": (earlier("0.1.2"), {"enum": ['a"b', "é", None]}, "[\n ]*"),
        "a dict with quotes, 1": (today("1.2.12"), {"enum": ['a"b', "é", None]}, "[\n ]*"),
    }),
    *each(what_is_not_served_is_said, {
        "a far older one": (earlier("0.0.100", "0.0.26"), "0.0.26"),
        "nothing": (Library({}, {}), "outlines_core"),
        "an Outlines from before there was a core": (Library({"outlines": "0.0.46"}, {}), "outlines_core"),
    }),
    *each(stage_3_takes_your_schemas, {
        "stage 3, an object": ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": [True, "x"]}},
                                "required": ["a"], "additionalProperties": False},)}),
]
