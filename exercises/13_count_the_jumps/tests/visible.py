"""What the learner sees."""

from __future__ import annotations

from exercises.bench import each

from .common import (
    CONSTRAINED,
    MANAGERS,
    in_constrained,
    in_managers,
    nobody_calls,
    picture,
    the_lines_are,
)

USED = in_constrained("def try_jump():\n    return helper_of_jump()\n\ndef helper_of_jump():\n    return ''\n")

CASES = [
    *each(the_lines_are, {
        "the removal of a small repository": ([], "HEAD", "jump_forward", {MANAGERS: (3, 0), CONSTRAINED: (2, 2)}),
        "a word twice in a line": ([in_managers("jump = jump\n"), in_constrained("jump, jump, jump\njump\n")], "HEAD",
                                   "jump", {MANAGERS: (1, 1), CONSTRAINED: (0, 2)}),
    }),
    *each(nobody_calls, {
        "called from another folder": ([USED, in_managers("value = backend.try_jump()\n")], "jump", {},
                                       {"try_jump": "scheduler.py calls backend.try_jump()",
                                        "helper_of_jump": "try_jump calls it"}),
        "nobody calls": ([USED, in_managers("value = 1\n")], "jump", {"try_jump": "no code calls it"},
                         {"helper_of_jump": "try_jump calls it, out of reach or not"}),
    }),
]

__all__ = ["CASES", "picture"]
