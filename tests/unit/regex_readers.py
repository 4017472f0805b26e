"""Everyone who reads a pattern, held to Python's answer on the pattern as written."""

from __future__ import annotations

import itertools
import re
import warnings

import interegular
import regex

from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constrain.regex.regex_tree import Alternate, Concat, Empty, Node, Repeat

LETTERS = "ab1Kk \né-]"
SHORT = ["".join(chars) for length in range(4) for chars in itertools.product(LETTERS, repeat=length)]


def ends(node: Node, text: str, start: int) -> set[int]:
    """Where a match of the tree that begins at `start` can end, straight from what each node means."""
    match node:
        case Empty():
            return {start}
        case CharSet():
            return {start + 1} if start < len(text) and ord(text[start]) in node else set()
        case Concat(parts):
            reached = {start}
            for part in parts:
                reached = {end for at in reached for end in ends(part, text, at)}
            return reached
        case Alternate(branches):
            return {end for branch in branches for end in ends(branch, text, start)}
        case Repeat(item, low, high):
            return _repeated(item, low, high, text, start)


def _repeated(item: Node, low: int, high: int | None, text: str, start: int) -> set[int]:
    # Each round but an empty one uses up a character, so more rounds than that end nowhere new.
    rounds = low + len(text) + 1
    reached, found = {start}, {start} if low == 0 else set()
    for count in range(1, (rounds if high is None else min(high, rounds)) + 1):
        reached = {end for at in reached for end in ends(item, text, at)}
        found |= reached if count >= low else set()
        if not reached:
            break
    return found


def python(pattern: str) -> re.Pattern[str]:
    """The pattern as Python reads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(pattern, re.ASCII)


def check_same_language(pattern: str, texts: list[str]) -> None:
    """Python on the pattern as written, and every reader of the normal form, agree about each text."""
    wanted = python(pattern).fullmatch
    normal = normalise(pattern)
    readers = {"re": re.compile(normal.text).fullmatch, "regex": regex.compile(normal.text).fullmatch,
               "explicit": re.compile(normal.explicit_text).fullmatch}
    for text in texts:
        right = wanted(text) is not None
        assert (len(text) in ends(normal.tree, text, 0)) == right, (pattern, normal.tree, text)
        for name, fullmatch in readers.items():
            assert (fullmatch(text) is not None) == right, (name, pattern, normal.text, text)


def check_interegular(pattern: str, texts: list[str]) -> None:
    """Stage 1's parser, given the normal form, agrees with Python about each text."""
    wanted = python(pattern).fullmatch
    automaton = interegular.parse_pattern(normalise(pattern).text).to_fsm()
    for text in texts:
        assert automaton.accepts(text) == (wanted(text) is not None), (pattern, text)
