"""Inline flags of a pattern, and the comments and blanks they let a pattern hold."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from shared_runtime.constrain.regex.regex_classes import Malformed
from shared_runtime.errors import UnsupportedConstraintError

FLAG_GROUP = re.compile(r"\(\?([a-zA-Z]*)(-[a-zA-Z]+)?([:)])")
_BLANKS = " \t\n\r\v\f"


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags in force at one place of a pattern: `i`, `s` and `x`."""

    ignore_case: bool = False
    dot_all: bool = False
    verbose: bool = False


def changed(flags: Flags, group: re.Match[str]) -> Flags:
    """The flags inside, or after, a match of `FLAG_GROUP`.

    `a` changes nothing (ASCII classes are the dialect's own), nor does `m` (it matters to inner anchors).

    Raises:
        UnsupportedConstraintError: any other flag; `offset` points at it.
    """
    for part, value in ((1, True), (2, False)):
        for offset in range(group.start(part), group.end(part)):
            match group.string[offset]:
                case "i":
                    flags = replace(flags, ignore_case=value)
                case "s":
                    flags = replace(flags, dot_all=value)
                case "x":
                    flags = replace(flags, verbose=value)
                case "a" | "m" | "-":
                    pass
                case other:
                    raise UnsupportedConstraintError(
                        f"the flag {other!r} is not part of the regex dialect", offset=offset,
                        fix="the flags are a, i, m, s and x")
    return flags


def skip_comments(pattern: str, at: int, flags: Flags) -> int:
    """The offset behind comments `(?#...)` and, in verbose mode, blanks and `#` comments.

    Raises:
        Malformed: a comment does not end.
    """
    while at < len(pattern):
        if pattern.startswith("(?#", at):
            at = _end_of_comment(pattern, at, ")")
        elif flags.verbose and pattern[at] in _BLANKS:
            at += 1
        elif flags.verbose and pattern[at] == "#":
            at = _end_of_comment(pattern, at, "\n")
        else:
            break
    return at


def _end_of_comment(pattern: str, at: int, end: str) -> int:
    while at < len(pattern):
        here = pattern[at]
        # A backslash hides the next character from the search for the end, in `re` too.
        at += 2 if here == "\\" else 1
        if here == end:
            return at
    if end == ")":
        raise Malformed
    return at
