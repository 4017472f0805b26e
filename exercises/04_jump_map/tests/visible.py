"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import a_dead_end_is_left, picture, stage_2_jumps_as_before, what_is_forced_is_what_stage_2_says

CASES = [
    *each(what_is_forced_is_what_stage_2_says, {"three letters": ("abc", b"")}),
    Case("a circle that nothing leads out of", a_dead_end_is_left),
    *each(what_is_forced_is_what_stage_2_says, {
        "from its middle": ("abc", b"a"),
        "up to a choice": ("ab(c|d)", b""),
        "a text that may end here": ("ab(cde)?", b"ab"),
        "blanks that may go on": ("[-+]?[0-9]+[ ]*", b"7 "),
        "inside a character": ("霍格沃兹|霍比特人", "霍".encode() + b"\xe6\xa0"),
        "a wildcard": (".*", b""),
    }),
    *each(stage_2_jumps_as_before, {"stage 2 with your map": ('"name": "[a-z]+"', '"n')}),
]

__all__ = ["CASES", "picture"]
