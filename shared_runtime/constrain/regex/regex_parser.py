"""Reads a pattern of the dialect into a tree, knowing at each moment where it is.

Python's own parser keeps no offsets and offers no public tree, so this one reads the pattern again. Python's
`re` has the last word on what is a valid pattern (`regex_dialect`), and the tests hold both to one language.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from shared_runtime.constrain.regex.charset import EVERYTHING, NOT_NEWLINE, NOTHING, CharSet
from shared_runtime.constrain.regex.regex_classes import (
    CATEGORIES,
    Malformed,
    is_surrogate,
    read_class,
    read_code_point,
    read_escape_pair,
)
from shared_runtime.constrain.regex.regex_flags import FLAG_GROUP, Flags, changed, skip_comments
from shared_runtime.constrain.regex.regex_tree import EMPTY, Node, alternate, concat, repeat
from shared_runtime.errors import GrammarSyntaxError, UnsupportedConstraintError

MAX_NESTING = 100
MAX_COUNT = 2**32 - 2
_QUANTIFIER = re.compile(r"\{(?!\})([0-9]*)(,?)([0-9]*)\}")
_BACKREFERENCE = re.compile(r"\\[1-9][0-9]?")
_OCTAL = re.compile(r"\\[0-3][0-7]{2}|\\0[0-7]?")
_OCTAL_TOO_LARGE = re.compile(r"\\[4-7][0-7]{2}")
_REFUSED_GROUPS = {"(?=": "look-ahead", "(?!": "look-ahead", "(?<=": "look-behind", "(?<!": "look-behind",
                   "(?>": "an atomic group", "(?(": "a conditional", "(?P=": "a backreference"}
_REFUSED_ESCAPES = {"\\b": "a word boundary", "\\B": "a word boundary", "\\p": "a Unicode property",
                    "\\P": "a Unicode property"}


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the pattern already read.

    Attributes:
        node: its language.
        zero_width: it can match nothing but the empty text.
        starts: offsets of its `^` and `\\A`, all at the pattern's own start.
        ends: offsets of its `$` and `\\Z` with nothing behind them so far.
        repeatable: a quantifier may follow.
    """

    node: Node
    zero_width: bool = False
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    repeatable: bool = True


def _starts(pieces: list[_Piece]) -> tuple[int, ...]:
    return tuple(offset for piece in pieces for offset in piece.starts)


class PatternReader:
    """One pass over one pattern.

    Args:
        pattern: the pattern as the user wrote it.
        avoid: characters that no text may contain; classes lose them.
        edges: what an anchor at the start, and one at the end, leave in the tree.
    """

    def __init__(self, pattern: str, avoid: CharSet = NOTHING, edges: tuple[Node, Node] = (EMPTY, EMPTY)) -> None:
        self.pattern = pattern
        self.avoid = avoid
        self._edges = edges
        self.first_empty: int | None = None
        self._at = 0

    def read(self) -> Node:
        """The language of the whole pattern, `NOTHING` if it is empty (`first_empty`: the class to blame).

        Raises:
            UnsupportedConstraintError: a construct outside the dialect; `offset` points at it.
            GrammarSyntaxError: a count or a nesting past the limits.
            Malformed: not a valid pattern; Python's `re` has the message.
        """
        piece = self._alternation(self._leading_flags(), depth=0, at_start=True)
        if self._at < len(self.pattern):
            raise Malformed
        return piece.node

    def _leading_flags(self) -> Flags:
        flags = Flags()
        while True:
            self._at = skip_comments(self.pattern, self._at, flags)
            found = FLAG_GROUP.match(self.pattern, self._at)
            if found is None or found[3] == ":":
                return flags
            flags = changed(flags, found)
            self._at = found.end()

    def _alternation(self, flags: Flags, depth: int, at_start: bool) -> _Piece:
        branches = [self._sequence(flags, depth, at_start)]
        while self.pattern.startswith("|", self._at):
            self._at += 1
            branches.append(self._sequence(flags, depth, at_start))
        if len(branches) == 1:
            return branches[0]
        return _Piece(alternate(branch.node for branch in branches), all(b.zero_width for b in branches),
                      _starts(branches), tuple(offset for branch in branches for offset in branch.ends))

    def _sequence(self, flags: Flags, depth: int, at_start: bool) -> _Piece:
        pieces: list[_Piece] = []
        # What stands before the last piece, which a quantifier may still change.
        ends_before: tuple[int, ...] = ()
        still_start = at_start
        while True:
            self._at = skip_comments(self.pattern, self._at, flags)
            if self._at == len(self.pattern) or self.pattern[self._at] in "|)":
                break
            if (found := self._quantifier()) is not None:
                if not pieces or not pieces[-1].repeatable:
                    raise Malformed
                pieces[-1] = self._repeated(pieces[-1], *found)
                continue
            if pieces:
                still_start = still_start and pieces[-1].zero_width
                ends_before = self._ends(ends_before, pieces[-1])
            pieces.append(self._atom(flags, depth, still_start))
        if not pieces:
            return _Piece(EMPTY, zero_width=True)
        ends = self._ends(ends_before, pieces[-1])
        return _Piece(concat(piece.node for piece in pieces), all(piece.zero_width for piece in pieces),
                      _starts(pieces), ends)

    def _ends(self, before: tuple[int, ...], piece: _Piece) -> tuple[int, ...]:
        if before and not piece.zero_width:
            raise self._inner_anchor(before[0])
        return before + piece.ends

    def _inner_anchor(self, offset: int) -> UnsupportedConstraintError:
        name = self.pattern[offset:offset + 2] if self.pattern[offset] == "\\" else self.pattern[offset]
        return UnsupportedConstraintError(
            f"the anchor {name} is not at the outer edge of the pattern", offset=offset,
            fix="leave it out: a regex always has to match the whole output")

    def _quantifier(self) -> tuple[int, int | None] | None:
        """Consume `* + ? {n} {n,} {,m} {n,m}`, lazy forms included; None when none stands here."""
        start = self._at
        low, high = 0, None
        match self.pattern[start]:
            case "*":
                self._at += 1
            case "+":
                low, self._at = 1, start + 1
            case "?":
                high, self._at = 1, start + 1
            case "{":
                found = _QUANTIFIER.match(self.pattern, start)
                if found is None:
                    return None
                self._at = found.end()
                low = self._count(found, 1) or 0
                high = self._count(found, 3) if found[2] else low
                if high is not None and high < low:
                    raise Malformed
            case _:
                return None
        if self.pattern.startswith("+", self._at):
            raise UnsupportedConstraintError("a possessive quantifier is not part of the regex dialect",
                                             offset=start, fix=f"leave out the + at {self._at}")
        if self.pattern.startswith("?", self._at):
            self._at += 1
        return low, high

    def _count(self, found: re.Match[str], group: int) -> int | None:
        digits = found[group].lstrip("0") or found[group][:1]
        if len(digits) > 10 or (digits and int(digits) > MAX_COUNT):
            raise GrammarSyntaxError("the repetition number is too large", offset=found.start(group),
                                     fix=f"at most {MAX_COUNT}")
        return int(digits) if digits else None

    def _repeated(self, piece: _Piece, low: int, high: int | None) -> _Piece:
        if (high is None or high > 1) and not piece.zero_width and (piece.starts or piece.ends):
            raise self._inner_anchor((piece.starts + piece.ends)[0])
        return replace(piece, node=repeat(piece.node, low, high),
                       zero_width=piece.zero_width or high == 0, repeatable=False)

    def _atom(self, flags: Flags, depth: int, at_start: bool) -> _Piece:
        start = self._at
        match self.pattern[start]:
            case "(":
                return self._parenthesis(flags, depth, at_start)
            case "[":
                chars, self._at = read_class(self.pattern, start, flags.ignore_case)
                return _Piece(self._allowed(chars, start))
            case "\\":
                return self._escape(flags, at_start)
            case "^":
                self._at += 1
                return self._start_anchor(start, at_start)
            case "$":
                self._at += 1
                return self._end_anchor(start)
            case ".":
                self._at += 1
                return _Piece(self._allowed(EVERYTHING if flags.dot_all else NOT_NEWLINE, start))
            case char:
                self._at += 1
                return self._literal(ord(char), start, flags)

    def _start_anchor(self, offset: int, at_start: bool) -> _Piece:
        if not at_start:
            raise self._inner_anchor(offset)
        return _Piece(self._edges[0], zero_width=True, starts=(offset,), repeatable=False)

    def _end_anchor(self, offset: int) -> _Piece:
        return _Piece(self._edges[1], zero_width=True, ends=(offset,), repeatable=False)

    def _literal(self, code_point: int, offset: int, flags: Flags) -> _Piece:
        if is_surrogate(code_point):
            self._note_empty(offset)
            return _Piece(NOTHING)
        chars = CharSet.char(code_point)
        return _Piece(self._allowed(chars.fold_ascii() if flags.ignore_case else chars, offset))

    def _allowed(self, chars: CharSet, offset: int) -> CharSet:
        kept = chars - self.avoid if self.avoid != NOTHING else chars
        if kept == NOTHING and chars != NOTHING:
            raise UnsupportedConstraintError(
                f"the character U+{chars.intervals[0][0]:04X} is reserved and cannot be part of an output",
                offset=offset, fix="leave it out of the pattern")
        if kept == NOTHING:
            self._note_empty(offset)
        return kept

    def _note_empty(self, offset: int) -> None:
        if self.first_empty is None:
            self.first_empty = offset

    def _escape(self, flags: Flags, at_start: bool) -> _Piece:
        start = self._at
        pair = read_escape_pair(self.pattern, start)
        if pair in _REFUSED_ESCAPES:
            raise self._refusal(f"{_REFUSED_ESCAPES[pair]} ({pair})", start)
        self._at += 2
        if pair in CATEGORIES:
            return _Piece(self._allowed(CATEGORIES[pair], start))
        if pair == "\\A":
            return self._start_anchor(start, at_start)
        if pair in ("\\Z", "\\z"):
            return self._end_anchor(start)
        if (octal := _OCTAL.match(self.pattern, start)) is not None:
            self._at = octal.end()
            return self._literal(int(octal[0][1:], 8), start, flags)
        if _OCTAL_TOO_LARGE.match(self.pattern, start):
            raise Malformed
        if (reference := _BACKREFERENCE.match(self.pattern, start)) is not None:
            raise self._refusal(f"a backreference ({reference[0]})", start)
        code_point, self._at = read_code_point(self.pattern, start)
        return self._literal(code_point, start, flags)

    def _refusal(self, construct: str, offset: int) -> UnsupportedConstraintError:
        return UnsupportedConstraintError(f"{construct} is not part of the regex dialect", offset=offset,
                                          fix="write the pattern without it")

    def _parenthesis(self, flags: Flags, depth: int, at_start: bool) -> _Piece:
        start = self._at
        if depth == MAX_NESTING:
            raise GrammarSyntaxError(f"groups are nested more than {MAX_NESTING} deep", offset=start,
                                     fix="remove groups that are not needed")
        inner = self._opening(flags)
        piece = self._alternation(inner, depth + 1, at_start)
        if not self.pattern.startswith(")", self._at):
            raise Malformed
        self._at += 1
        return replace(piece, repeatable=True)

    def _opening(self, flags: Flags) -> Flags:
        """Consume `(`, `(?:`, `(?P<name>` or `(?flags:`; the flags inside the group."""
        start = self._at
        if not self.pattern.startswith("(?", start):
            self._at += 1
            return flags
        for opening, name in _REFUSED_GROUPS.items():
            if self.pattern.startswith(opening, start):
                raise self._refusal(f"{name} ({opening}...)", start)
        if self.pattern.startswith("(?P<", start):
            self._at = self.pattern.find(">", start) + 1
            if self._at == 0:
                raise Malformed
            return flags
        found = FLAG_GROUP.match(self.pattern, start)
        if found is None or found[3] == ")":
            raise Malformed
        self._at = found.end()
        return changed(flags, found)
