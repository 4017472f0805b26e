"""What is graded: parents, versions, what looks like a call, wrappers, broken files; the real commit with a clone."""

from __future__ import annotations

from exercises.bench import each
from jumpforward.exercises.case import Case

from .common import (
    CONSTRAINED,
    MANAGERS,
    in_constrained,
    in_managers,
    nobody_calls,
    real_clone,
    the_lines_are,
    the_real_commit,
    the_real_functions,
)

BACKEND = in_constrained("class Backend:\n    def try_jump(self):\n        return None\n")
WRAPPER = in_constrained("class Wrapper:\n    def try_jump(self):\n        return self.inner.try_jump()\n",
                         "reasoner.py")
TALK = ('"""Calls try_jump() when it may."""\nfrom backend import try_jump  # then try_jump()\n'
        'print("try_jump()")\nnames = {try_jump: 1}\n')
FOUND = real_clone()
if FOUND is not None:
    FOUND.close()

CASES = [
    *each(the_lines_are, {
        "the first commit of all": ([], "HEAD~4", "three", {MANAGERS: (0, 0), CONSTRAINED: (0, 1)}),
        "a version without a tag": ([], "v0.1.12", "jump_forward", {MANAGERS: (3, 3), CONSTRAINED: (2, 2)}),
        "a commit in the middle": ([], "HEAD~3", "jump_forward", {MANAGERS: (0, 3), CONSTRAINED: (0, 2)}),
        "a word that is nowhere": ([], "HEAD", "nowhere", {MANAGERS: (0, 0), CONSTRAINED: (0, 0)}),
        "several files, also such as are no Python": (
            [{**in_managers("jump\n"), **in_managers("# jump\n", "notes.md")}, in_managers(None, "notes.md")], "HEAD",
            "jump", {MANAGERS: (2, 1), CONSTRAINED: (0, 0)}),
    }),
    *each(nobody_calls, {
        "what only looks like a call": ([{**BACKEND, **in_managers(TALK)}], "jump",
                                        {"try_jump": "comments, texts and imports name it, and no code calls it"}),
        "a wrapper that hands on": ([{**BACKEND, **WRAPPER}], "jump",
                                    {"try_jump": "only a wrapper of the same name hands on to it, nobody calls that"}),
        "a wrapper that somebody calls": ([{**BACKEND, **WRAPPER, **in_managers("self.grammar.try_jump()\n")}], "jump",
                                          {}, {"try_jump": "scheduler.py calls self.grammar.try_jump()"}),
        "an async function that calls itself": (
            [in_constrained("async def jump_on(n):\n    return await jump_on(n - 1)\n")], "jump",
            {"jump_on": "an async function that only calls itself"}),
        "a call between a function and its decorator": (
            [in_constrained("@cached(jump_key())\ndef jump_map():\n    def jump_key():\n        pass\n")], "jump",
            {"jump_map": "no code calls it"}, {"jump_key": "a decorator calls it"}),
        "a file that is no Python": (
            [{**BACKEND, **in_managers("print 'old'\nbackend.try_jump()\n")}], "jump",
            {"try_jump": "the file with the call cannot be parsed, and has no calls"}),
        "what was called before, and is not any more": (
            [{**BACKEND, **in_managers("x.try_jump()\n")}, in_managers("pass\n")], "jump",
            {"try_jump": "the call went with this commit"}),
        "names without the word": ([in_constrained("def start():\n    pass\n\ndef end_of_jump():\n    pass\n")], "jump",
                                   {"end_of_jump": "no code calls it"}, {"start": "the word is not in its name"}),
    }),
    *([] if FOUND is None else [Case("your clone: the lines of 935cda944b", the_real_commit),
                                Case("your clone: who is out of reach", the_real_functions)]),
]
