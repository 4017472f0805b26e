"""What is graded: seams, several jumps, the start, characters of two bytes, more and fewer neighbours."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import nothing_of_the_callers_changes, the_counts_come_true, the_crossover_comes_true

CASES = [
    *each(the_counts_come_true, {
        "one forced byte, jumped": ("a<0>c", 1),
        "forced from the start": ("<012>c", 2),
        "forced from the start, too short behind the first byte": ("<01>c<2345>d", 2),
        "forced to the end": ("a<012>", 2),
        "all is forced": ("<true>", 2),
        "several jumps": ("a<0123>b<45>c<6>d<7890>", 2),
        "a character of two bytes": ("a<é>b", 2),
        "a character of two bytes, and a higher limit": ("a<é>b<éé>c", 3),
        "all that has come grows together": ("nam<e>: t<rue>", 1),
        "a seam in the middle": ("xa<bc>d", 2),
        "a jump over ids that stay": ("name<\": t>r<ue>", 2),
        "a prompt that grows together with the answer": ("b<012>c", 2, "a "),
    }),
    Case("asked twice", nothing_of_the_callers_changes),
    *each(the_crossover_comes_true, {"nobody else": (0,), "two neighbours": (2,), "four neighbours": (4,)}),
]
