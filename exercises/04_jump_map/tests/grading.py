"""What is graded: more regexes, circles without an end, whole answers."""

from __future__ import annotations

from exercises.bench import each

from .common import stage_2_jumps_as_before, what_is_forced_is_what_stage_2_says

CASES = [
    *each(what_is_forced_is_what_stage_2_says, {
        "nothing at a choice": ("a|b", b""),
        "nothing behind a whole text": ("abc", b"abc"),
        "a negated class": ('"[^"]*"', b'"'),
        "a common beginning": ("霍格沃兹|霍比特人", b""),
        "up to the middle of a character": ("é|è", b""),
        "counted repeats": ("(ab){3}", b"a"),
        "a choice that meets again": ("(a|b)xyz", b"a"),
        "an optional beginning": ("(ab)?cd", b""),
        "optional blanks before a fixed text": ("a *b", b"a"),
        "JSON": ('\\{"name": "[a-z]{1,3}", "age": [0-9]{1,2}\\}', b'{"name": "abc'),
        "the empty text": ("(abc)?", b""),
    }),
    *each(stage_2_jumps_as_before, {
        "stage 2, an optional tail": ("y(cde)?", "y"),
        "stage 2, blanks": ("[0-9] *", "7"),
        "stage 2, characters of three bytes": ("霍格沃兹|霍比特人", "霍比"),
        "stage 2, several jumps": ('\\{"name": "[a-z]{1,3}", "age": [0-9]{2}\\}', "nam"),
    }),
]
