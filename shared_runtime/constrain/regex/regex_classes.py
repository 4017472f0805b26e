"""Single characters and character classes of a pattern: escapes, `[...]`, and `(?i)` inside them."""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache

from shared_runtime.constrain.regex.charset import DIGIT, LAST_CODE_POINT, SPACE, SURROGATES, WORD, CharSet

CATEGORIES = {
    "\\d": DIGIT, "\\D": DIGIT.complement(),
    "\\s": SPACE, "\\S": SPACE.complement(),
    "\\w": WORD, "\\W": WORD.complement(),
}
_CONTROLS = {"\\a": 0x07, "\\b": 0x08, "\\f": 0x0C, "\\n": 0x0A, "\\r": 0x0D, "\\t": 0x09, "\\v": 0x0B}
_HEX = re.compile(r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})")
_NAMED = re.compile(r"\\N\{([^}]+)\}")
_CLASS_OCTAL = re.compile(r"\\([0-3]?[0-7]{1,2})")


class Malformed(Exception):
    """The text is no valid pattern. Python's `re` is asked for the message, so this one has none."""


def is_surrogate(code_point: int) -> bool:
    """Whether the code point is half of a UTF-16 pair and so no character."""
    return SURROGATES[0] <= code_point <= SURROGATES[1]


def read_escape_pair(pattern: str, at: int) -> str:
    """The backslash at `at` with the character behind it.

    Raises:
        Malformed: the pattern ends there.
    """
    if at + 1 >= len(pattern):
        raise Malformed
    return pattern[at:at + 2]


def read_code_point(pattern: str, at: int) -> tuple[int, int]:
    """The code point of an escape that stands for one character, and the offset behind it.

    Raises:
        Malformed: no such escape, an unknown name, or a value past U+10FFFF.
    """
    pair = read_escape_pair(pattern, at)
    if pair in _CONTROLS:
        return _CONTROLS[pair], at + 2
    if (found := _HEX.match(pattern, at)) is not None:
        value = int(found[found.lastindex or 0], 16)
        if value > LAST_CODE_POINT:
            raise Malformed
        return value, found.end()
    if (named := _NAMED.match(pattern, at)) is not None:
        try:
            return ord(unicodedata.lookup(named[1])), named.end()
        except (KeyError, TypeError):
            # TypeError: the name of a sequence of several characters.
            raise Malformed from None
    if pair[1].isascii() and pair[1].isalnum():
        raise Malformed
    return ord(pair[1]), at + 2


def read_class(pattern: str, at: int, ignore_case: bool) -> tuple[CharSet, int]:
    """The set of the class that opens at `at`, and the offset behind its bracket.

    `[[a]` and `[a&&b]` are read as Python reads them: every `[ & - ~ |` is itself.

    Raises:
        Malformed: the class does not end, or a range is none.
    """
    at += 1
    negated = pattern.startswith("^", at)
    at += negated
    chars: list[CharSet] = []
    while not (chars and pattern.startswith("]", at)):
        first, at = _member(pattern, at)
        if not pattern.startswith("-", at):
            chars.append(_set_of(first, ignore_case))
        elif pattern.startswith("]", at + 1):
            chars += [_set_of(first, ignore_case), CharSet.char(ord("-"))]
            at += 1
        else:
            last, at = _member(pattern, at + 1)
            if not isinstance(first, int) or not isinstance(last, int) or last < first:
                raise Malformed
            chars.append(_range(first, last, ignore_case))
    union = CharSet.of(interval for part in chars for interval in part.intervals)
    return (union.complement() if negated else union), at + 1


def _member(pattern: str, at: int) -> tuple[int | CharSet, int]:
    """One character of a class, or the set of a category like `\\d`."""
    if at >= len(pattern):
        raise Malformed
    if pattern[at] != "\\":
        return ord(pattern[at]), at + 1
    pair = read_escape_pair(pattern, at)
    if pair in CATEGORIES:
        return CATEGORIES[pair], at + 2
    if (octal := _CLASS_OCTAL.match(pattern, at)) is not None:
        return int(octal[1], 8), octal.end()
    return read_code_point(pattern, at)


def _set_of(member: int | CharSet, ignore_case: bool) -> CharSet:
    chars = CharSet.char(member) if isinstance(member, int) else member
    return chars.fold_ascii() if ignore_case else chars


def _range(first: int, last: int, ignore_case: bool) -> CharSet:
    chars = CharSet.of([(first, last)])
    if not ignore_case:
        return chars
    folded = chars.fold_ascii()
    return folded if last <= 0xFFFF else folded | _folded_by_re(first, last)


@lru_cache(maxsize=16)
def _folded_by_re(first: int, last: int) -> CharSet:
    """What `re` adds to a range past U+FFFF under `(?i)`.

    There it folds by the upper case of all Unicode, `re.ASCII` or not (a Deseret small letter is in the range
    of the capitals). The rule is an accident of its compiler, so `re` itself is asked.
    """
    matches = re.compile(f"[\\U{first:08x}-\\U{last:08x}]", re.ASCII | re.IGNORECASE).fullmatch
    return CharSet.of((ord(char), ord(char)) for char in _lower_case() if matches(char))


@cache
def _lower_case() -> tuple[str, ...]:
    """The characters that have another upper case: some 1,500 of the 1.1 million."""
    return tuple(char for char in map(chr, range(LAST_CODE_POINT + 1)) if char.upper() != char)
