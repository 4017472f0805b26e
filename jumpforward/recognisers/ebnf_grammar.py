"""Reads grammars of the GBNF kind: rules `name ::= ...` with texts, classes, groups, `|` and `* + ? {n,m}`.

What a rule may hold: `"text"`, `[a-z]`, `[^"\\n]`, `.` (any character), other rules, `( )`. `#` begins a comment.
Escapes: `\\n \\r \\t \\\\ \\" \\' \\[ \\] \\- \\^ \\/`, `\\xHH`, `\\uHHHH`, `\\UHHHHHHHH`. The start rule is `root`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from shared_runtime.errors import GrammarSyntaxError

Intervals: TypeAlias = tuple[tuple[int, int], ...]
Symbol: TypeAlias = str | Intervals
ANY: Intervals = ((0, 0xD7FF), (0xE000, 0x10FFFF))
# A rule in the grammar's source has no such name, so the rules made for groups and repeats never meet one.
_MADE = "<{}>"
MAX_PRODUCTIONS = 20_000

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_RULE = re.compile(_NAME.pattern + r"(?=\s*::=)")
_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_COUNTS = re.compile(r"\{\s*(\d{1,6})\s*(?:(,)\s*(\d{1,6})?\s*)?\}")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"} | {char: char for char in "\\\"'[]-^/"}
_HEX = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Grammar:
    """Productions of a context-free grammar over characters; a symbol is a rule's name or a set of code points."""

    productions: dict[str, tuple[tuple[Symbol, ...], ...]]
    start: str = "root"


def parse_grammar(source: str) -> Grammar:
    """The productions of a grammar's text.

    Raises:
        GrammarSyntaxError: it does not parse, names a rule that it does not define, or has no `root`.
    """
    reader = _Reader(source)
    reader.read()
    for name, offset in reader.used.items():
        if name not in reader.rules:
            raise GrammarSyntaxError(f"the rule {name!r} is not defined", offset=offset)
    if "root" not in reader.rules:
        raise GrammarSyntaxError("there is no rule 'root'", fix="begin with root ::= ...")
    return Grammar({name: tuple(ways) for name, ways in reader.rules.items()})


@dataclass(slots=True)
class _Reader:
    source: str
    at: int = 0
    rules: dict[str, list[tuple[Symbol, ...]]] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    depth: int = 0
    productions: int = 0

    def read(self) -> None:
        self._blank()
        while self.at < len(self.source):
            name = self._rule_name()
            if name is None:
                raise self._error("a rule begins with 'name ::='")
            if name in self.rules:
                raise self._error(f"the rule {name!r} is defined twice")
            self.rules[name] = []
            self.rules[name] = self._alternatives()

    def _error(self, message: str) -> GrammarSyntaxError:
        return GrammarSyntaxError(message, offset=self.at)

    def _blank(self) -> None:
        found = _BLANK.match(self.source, self.at)
        assert found is not None
        self.at = found.end()

    def _peek(self) -> str:
        return self.source[self.at:self.at + 1]

    def _rule_name(self) -> str | None:
        """The name at the start of a rule, which is consumed with its `::=`; None where no rule begins."""
        found = _RULE.match(self.source, self.at)
        if found is None:
            return None
        self.at = self.source.index("::=", found.end()) + 3
        return found[0]

    def _starts_rule(self) -> bool:
        before = self.at
        starts = self._rule_name() is not None
        self.at = before
        return starts

    def _alternatives(self) -> list[tuple[Symbol, ...]]:
        ways = [self._sequence()]
        while self._peek() == "|":
            self.at += 1
            ways.append(self._sequence())
        self.productions += len(ways)
        return ways

    def _sequence(self) -> tuple[Symbol, ...]:
        parts: list[Symbol] = []
        self._blank()
        while self._peek() not in ("", "|", ")") and not self._starts_rule():
            atom = self._atom()
            parts += self._repeated(atom)
            self._blank()
        return tuple(parts)

    def _atom(self) -> list[Symbol]:
        char = self._peek()
        if char == '"':
            return list(self._literal())
        if char == "[":
            return [self._class()]
        if char == ".":
            self.at += 1
            return [ANY]
        if char == "(":
            return [self._group()]
        name = _NAME.match(self.source, self.at)
        if name is None:
            raise self._error(f"{char!r} begins nothing that a rule can hold")
        self.used.setdefault(name[0], self.at)
        self.at = name.end()
        return [name[0]]

    def _group(self) -> str:
        self.at += 1
        self.depth += 1
        if self.depth > 100:
            raise self._error("groups are nested more than 100 deep")
        made = self._make(self._alternatives())
        self.depth -= 1
        if self._peek() != ")":
            raise self._error("a group is not closed")
        self.at += 1
        return made

    def _make(self, ways: list[tuple[Symbol, ...]]) -> str:
        name = _MADE.format(len(self.rules))
        self.rules[name] = ways
        self.productions += len(ways)
        if self.productions > MAX_PRODUCTIONS:
            raise self._error(f"the grammar has more than {MAX_PRODUCTIONS} productions")
        return name

    def _repeated(self, atom: list[Symbol]) -> list[Symbol]:
        """`atom` with the quantifier that follows it; of a text, the whole text is repeated."""
        char = self._peek()
        if char in ("*", "+", "?"):
            self.at += 1
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        elif (counts := _COUNTS.match(self.source, self.at)) is not None:
            self.at = counts.end()
            low = int(counts[1])
            high = int(counts[3]) if counts[3] else None if counts[2] else low
            if high is not None and high < low:
                raise self._error(f"{counts[0]}: the second count is smaller than the first")
        else:
            return atom
        if len(atom) * max(low, high or 0) > MAX_PRODUCTIONS:
            raise self._error(f"a repeat of more than {MAX_PRODUCTIONS} parts")
        return self._repeated([self._times(atom, low, high)])  # a quantifier may follow a quantifier

    def _times(self, atom: list[Symbol], low: int, high: int | None) -> Symbol:
        rest: list[Symbol] = []
        if high is None:
            loop = self._make([()])
            self.rules[loop] = [(), (loop, *atom)]  # to the left: a long repeat then costs no more than a short one
            rest = [loop]
        else:
            for _ in range(high - low):
                rest = [self._make([(), (*atom, *rest)])]
        return self._make([(*(atom * low), *rest)])

    def _literal(self) -> list[Symbol]:
        self.at += 1
        chars: list[Symbol] = []
        while self._peek() != '"':
            if self._peek() in ("", "\n"):
                raise self._error("a text is not closed")
            code_point = self._character()
            chars.append(((code_point, code_point),))
        self.at += 1
        return chars

    def _class(self) -> Intervals:
        self.at += 1
        negated = self._peek() == "^"
        self.at += negated
        ranges: list[tuple[int, int]] = []
        while self._peek() != "]":
            if self._peek() in ("", "\n"):
                raise self._error("a class is not closed")
            first = last = self._character()
            if self._peek() == "-" and self.source[self.at + 1:self.at + 2] not in ("]", ""):
                self.at += 1
                last = self._character()
                if last < first:
                    raise self._error("a range runs backwards")
            ranges.append((first, last))
        self.at += 1
        return complement(ranges) if negated else tuple(sorted(ranges))

    def _character(self) -> int:
        char = self._peek()
        self.at += 1
        if char != "\\":
            return ord(char)
        kind = self._peek()
        self.at += 1
        if kind in _HEX:
            digits = self.source[self.at:self.at + _HEX[kind]]
            if re.fullmatch(f"[0-9a-fA-F]{{{_HEX[kind]}}}", digits) and int(digits, 16) <= 0x10FFFF:
                self.at += _HEX[kind]
                return int(digits, 16)
        elif kind in _ESCAPES and kind:
            return ord(_ESCAPES[kind])
        self.at -= 2
        raise self._error(f"the escape \\{kind} is not known")


def complement(ranges: list[tuple[int, int]]) -> Intervals:
    """Every code point but the surrogates and those in `ranges`."""
    found: list[tuple[int, int]] = []
    for low, high in ANY:
        at = low
        for first, last in sorted(ranges):
            if first > at:
                found.append((at, min(first - 1, high)))
            at = max(at, last + 1)
            if at > high:
                break
        if at <= high:
            found.append((at, high))
    return tuple((first, last) for first, last in found if first <= last)
