"""GBNF grammars (`root ::= ...`) for engines whose own language has a greedy lexer.

A lexer takes the longest word: with `item ::= [a-z]+` as a word, `root ::= item "a"` never ends, and with the words
`"ab" | "abc"` before `"c"` the text `abc` is lost. So every character becomes a word of its own here, and the words
of the grammar become rules; then nothing is left for a lexer to be greedy about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from shared_runtime.constrain.regex.charset import EVERYTHING, NOTHING, CharSet
from shared_runtime.constrain.regex.regex_tree import render
from shared_runtime.errors import GrammarSyntaxError, UnsatisfiableConstraintError

_TOKEN = re.compile(r"""
    (?P<skip> \s+ | \#[^\n]* )
  | (?P<define> ::= )
  | (?P<name> [A-Za-z0-9_-]+ )
  | (?P<text> "(?:\\.|[^"\\\n])*" )
  | (?P<set> \[\^?(?:\\.|[^\]\\])*\] )
  | (?P<count> \{\s*\d+\s*(?:,\s*\d*\s*)?\} )
  | (?P<mark> [()|*+?.] )
""", re.VERBOSE)
_CHAR = re.compile(r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\(.)|(.)", re.DOTALL)
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}


Needs: TypeAlias = "str | list[list[Needs]]"
"""What a piece of a rule needs to be finished: a rule, or all of one of several lists of needs."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int


def gbnf_to_lark(source: str) -> str:
    """The same language as a Lark grammar of single characters, with the start rule `start`.

    Raises:
        GrammarSyntaxError: it does not parse, a rule has no definition or two, or there is no rule `root`; with its
            offset.
        UnsatisfiableConstraintError: a rule can never be finished.
    """
    reader = _read(source)
    return "".join(f"{reader.name(rule)}: {body}\n" for rule, body in reader.bodies.items())


def check_gbnf(source: str) -> None:
    """Check a grammar. Raises as `gbnf_to_lark`."""
    _read(source)


def _read(source: str) -> _Reader:
    reader = _Reader(list(_tokens(source)))
    reader.read()
    if "root" not in reader.bodies:
        raise GrammarSyntaxError("there is no rule `root`", where="ebnf", fix="name the start rule root")
    for name, offset in reader.used.items():
        if name not in reader.bodies:
            raise GrammarSyntaxError(f"the rule `{name}` is not defined", offset=offset)
    reader.check_ends()
    return reader


def _tokens(source: str) -> Iterator[_Token]:
    offset = 0
    while offset < len(source):
        found = _TOKEN.match(source, offset)
        if found is None or found.lastgroup is None:
            raise GrammarSyntaxError(f"unexpected {source[offset]!r}", offset=offset)
        if found.lastgroup != "skip":
            yield _Token(found.lastgroup, found[0], offset)
        offset = found.end()
    yield _Token("end", "the end", offset)


@dataclass
class _Reader:
    """Recursive descent over the tokens, writing Lark on the way.

    Attributes:
        bodies: per rule, its right side. used: per rule that is asked for, the offset where that first happens.
        numbers: per rule seen, its number: Lark does not take every name.
        needs: per rule, what one text of it needs.
    """

    tokens: list[_Token]
    at: int = 0
    bodies: dict[str, str] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    needs: dict[str, Needs] = field(default_factory=dict)

    def name(self, rule: str) -> str:
        """What a rule is called in Lark."""
        return "start" if rule == "root" else f"r{self.numbers.setdefault(rule, len(self.numbers))}"

    def read(self) -> None:
        """All rules."""
        while self._here.kind != "end":
            rule = self._take("name")
            self._take("define")
            if rule.text in self.bodies:
                raise GrammarSyntaxError(f"the rule `{rule.text}` is defined twice", offset=rule.offset)
            self.bodies[rule.text], self.needs[rule.text] = self._alternatives()

    def check_ends(self) -> None:
        """Look for rules that go on for ever, like `root ::= "a" root`: each of their texts needs another of them.

        Raises:
            UnsatisfiableConstraintError: there is one, and `root` leads to it.
        """
        ending: set[str] = set()
        while found := {rule for rule, needs in self.needs.items() if rule not in ending and _met(needs, ending)}:
            ending |= found
        for rule in self._reached({"root"}, set()):
            if rule in self._reached(set(_names(self.needs[rule])), ending):
                raise UnsatisfiableConstraintError(
                    f"the rule `{rule}` can never be finished: every way through it needs another `{rule}` or the like",
                    where="ebnf", fix="give it an alternative without itself")

    def _reached(self, first: set[str], without: set[str]) -> list[str]:
        """The rules that `first` lead to, those among them, in the order of the source; not by way of `without`."""
        reached = first - without
        while more := {name for rule in reached for name in _names(self.needs[rule])} - reached - without:
            reached |= more
        return [rule for rule in self.needs if rule in reached]

    @property
    def _here(self) -> _Token:
        return self.tokens[self.at]

    def _take(self, kind: str, text: str | None = None) -> _Token:
        token = self._here
        if token.kind != kind or (text is not None and token.text != text):
            wanted = text or {"name": "a rule's name", "define": "::="}.get(kind, kind)
            raise GrammarSyntaxError(f"expected {wanted}, found {token.text}", offset=token.offset)
        self.at += 1
        return token

    def _alternatives(self) -> tuple[str, Needs]:
        branches = [self._sequence()]
        while self._here.text == "|" and self._here.kind == "mark":
            self.at += 1
            branches.append(self._sequence())
        return " | ".join(text for text, _ in branches), [needs for _, needs in branches]

    def _sequence(self) -> tuple[str, list[Needs]]:
        parts: list[str] = []
        needs: list[Needs] = []
        while (part := self._item()) is not None:
            times, may_be_left_out = self._repetition()
            parts.append(part[0] + times)
            needs.append([[]] if may_be_left_out else part[1])
        return " ".join(parts) or '""', needs

    def _item(self) -> tuple[str, Needs] | None:
        token = self._here
        if token.kind == "name" and self.tokens[self.at + 1].kind == "define":
            return None  # the next rule begins
        if token.kind not in ("name", "text", "set") and token.text not in ("(", "."):
            return None
        self.at += 1
        match token.kind:
            case "name":
                self.used.setdefault(token.text, token.offset)
                return self.name(token.text), token.text
            case "text":
                chars = [json.dumps(char) for char, _ in _characters(token)]
                return (chars[0] if len(chars) == 1 else f"({' '.join(chars)})" if chars else '""'), [[]]
            case "set":
                return _one_of(_set(token)), [[]]
            case _:
                if token.text == ".":
                    return _one_of(EVERYTHING), [[]]
                inner, needs = self._alternatives()
                self._take("mark", ")")
                return f"({inner})", needs

    def _repetition(self) -> tuple[str, bool]:
        """How often the item before may come, and whether it may be left out."""
        token = self._here
        if token.kind == "count":
            self.at += 1
            low, comma, high = token.text[1:-1].replace(" ", "").partition(",")
            if high and int(high) < int(low):
                raise GrammarSyntaxError(f"{token.text}: the bounds are the wrong way round", offset=token.offset)
            return f"{{{low}{comma}{high}}}", int(low) == 0
        if token.kind == "mark" and token.text in "*+?":
            self.at += 1
            return token.text, token.text != "+"
        return "", False


def _met(needs: Needs, ending: set[str]) -> bool:
    return needs in ending if isinstance(needs, str) else any(all(_met(need, ending) for need in way) for way in needs)


def _names(needs: Needs) -> Iterator[str]:
    if isinstance(needs, str):
        yield needs
    else:
        for way in needs:
            for need in way:
                yield from _names(need)


def _characters(token: _Token) -> Iterator[tuple[str, bool]]:
    """The characters between the quotation marks or brackets, and whether each was written with a backslash."""
    for found in _CHAR.finditer(token.text[1:-1]):
        *code, escaped, plain = found.groups()
        digits = next(filter(None, code), None)
        if digits is not None:
            if int(digits, 16) > 0x10FFFF or 0xD800 <= int(digits, 16) <= 0xDFFF:
                raise GrammarSyntaxError(f"{found[0]} is no character", offset=token.offset + 1 + found.start())
            yield chr(int(digits, 16)), True
        elif escaped is not None:
            if escaped.isalnum() and escaped not in _CONTROL:
                raise GrammarSyntaxError(f"unknown escape \\{escaped}", offset=token.offset + 1 + found.start())
            yield _CONTROL.get(escaped, escaped), True
        else:
            yield plain, False


def _set(token: _Token) -> CharSet:
    chars = list(_characters(token))
    negated = bool(chars) and chars[0] == ("^", False)
    chars = chars[negated:]
    chosen, index = NOTHING, 0
    while index < len(chars):
        first = last = ord(chars[index][0])
        if index + 2 < len(chars) and chars[index + 1] == ("-", False):
            last = ord(chars[index + 2][0])
            index += 2
        if last < first:
            raise GrammarSyntaxError(f"{token.text}: a range is the wrong way round", offset=token.offset)
        chosen |= CharSet.of([(first, last)])
        index += 1
    chosen = chosen.complement() if negated else chosen
    if chosen == NOTHING:
        raise GrammarSyntaxError(f"{token.text} allows no character", offset=token.offset)
    return chosen


def _one_of(chars: CharSet) -> str:
    text = render(chars, negated_classes=False)
    for char, name in (("/", "\\/"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(char, name)
    return f"/{text}/"
