"""A Thompson automaton over characters, built from Python's own parse tree of a pattern as the user wrote it."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.oracles.utf8 import FULL, Intervals, byte_runs

# The parse tree is an internal of `re`: pairs of an operator and its argument, whose shape depends on it.
_parser = importlib.import_module("re._parser")
_constants = importlib.import_module("re._constants")

MAX_STATES = 50_000
_NEWLINE: Intervals = ((10, 10),)
_ASCII = {"DIGIT": "[0-9]", "SPACE": "[ \t\n\r\f\v]", "WORD": "[0-9A-Za-z_]"}


@dataclass
class CharNfa:
    """States are numbers; state 0 is the start and `final` the only accepting one.

    Attributes:
        free: per state, the states it is together with.
        at_start: as `free`, but only before the first character (`^`).
        at_end: as `free`, but only after the last character (`$`).
        edges: per state, the characters it can read, each set with the state it leads to.
    """

    free: list[list[int]] = field(default_factory=list)
    at_start: list[list[int]] = field(default_factory=list)
    at_end: list[list[int]] = field(default_factory=list)
    edges: list[list[tuple[Intervals, int]]] = field(default_factory=list)
    final: int = 0

    def new(self) -> int:
        """A state without any edge."""
        if len(self.free) >= MAX_STATES:
            raise ValueError(f"the pattern needs more than {MAX_STATES} states")
        for column in (self.free, self.at_start, self.at_end):
            column.append([])
        self.edges.append([])
        return len(self.free) - 1


def build_nfa(pattern: str) -> CharNfa:
    """The automaton of `re.fullmatch(pattern, ., re.ASCII)`.

    Raises:
        re.error: Python does not parse the pattern.
        ValueError: a construct that no such automaton has (look-around, backreference, possessive quantifier).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        tree = _parser.parse(pattern, re.ASCII)
    nfa = CharNfa()
    start = nfa.new()
    nfa.final = _sequence(nfa, list(tree), start, int(tree.state.flags))
    return nfa


def _sequence(nfa: CharNfa, items: Iterable[tuple[object, object]], state: int, flags: int) -> int:
    for operator, argument in items:
        state = _item(nfa, str(operator), argument, state, flags)
    return state


def _item(nfa: CharNfa, operator: str, argument: object, state: int, flags: int) -> int:
    match operator, argument:
        case ("MAX_REPEAT" | "MIN_REPEAT"), (int(low), int(high), body):
            return _repeat(nfa, list(_items(body)), low, high, state, flags)
        case "SUBPATTERN", (_, int(added), int(removed), body):
            return _sequence(nfa, _items(body), state, (flags | added) & ~removed)
        case "BRANCH", (_, list(branches)):
            after = nfa.new()
            for branch in branches:
                first = nfa.new()
                nfa.free[state].append(first)
                nfa.free[_sequence(nfa, _items(branch), first, flags)].append(after)
            return after
        case "AT", where:
            after = nfa.new()
            _anchor(nfa, str(where))[state].append(after)
            return after
        case _:
            after = nfa.new()
            nfa.edges[state].append((_chars(operator, argument, flags), after))
            return after


def _items(body: object) -> Iterable[tuple[object, object]]:
    if not isinstance(body, (_parser.SubPattern, list)):
        raise TypeError(f"not a sequence of parse nodes: {body!r}")
    return [(operator, argument) for operator, argument in body]


def _anchor(nfa: CharNfa, where: str) -> list[list[int]]:
    if where in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
        return nfa.at_start
    if where in ("AT_END", "AT_END_STRING"):
        return nfa.at_end
    raise ValueError(f"no automaton for {where}")


def _repeat(nfa: CharNfa, body: Sequence[tuple[object, object]], low: int, high: int, state: int,
            flags: int) -> int:
    for _ in range(low):
        state = _sequence(nfa, body, state, flags)
    after = nfa.new()
    if high == int(_constants.MAXREPEAT):
        loop = nfa.new()
        nfa.free[state].append(loop)
        nfa.free[_sequence(nfa, body, loop, flags)].append(loop)
        nfa.free[loop].append(after)
        return after
    for _ in range(high - low):
        nfa.free[state].append(after)
        state = _sequence(nfa, body, state, flags)
    nfa.free[state].append(after)
    return after


def _chars(operator: str, argument: object, flags: int) -> Intervals:
    if operator == "ANY":
        return FULL if flags & re.DOTALL else _without(_NEWLINE)
    if operator == "LITERAL" and isinstance(argument, int):
        return _folded([(argument, argument)], flags)
    if operator == "NOT_LITERAL" and isinstance(argument, int):
        return _without(_folded([(argument, argument)], flags))
    if operator == "IN" and isinstance(argument, list):
        return _class(argument, flags)
    raise ValueError(f"no automaton for {operator}")


def _class(members: list[tuple[object, object]], flags: int) -> Intervals:
    parts: list[tuple[int, int]] = []
    negated = False
    for operator, argument in members:
        match str(operator), argument:
            case "NEGATE", _:
                negated = True
            case "LITERAL", int(code):
                parts += _folded([(code, code)], flags)
            case "RANGE", (int(first), int(last)):
                parts += _folded([(first, last)], flags)
            case "CATEGORY", name:
                parts += _category(str(name))
            case unknown, _:
                raise ValueError(f"no character set for {unknown}")
    union = _union(parts)
    return _without(union) if negated else union


def _category(name: str) -> Intervals:
    kind = name.removeprefix("CATEGORY_")
    members = re.compile(_ASCII[kind.removeprefix("NOT_")])
    inside = tuple(byte_runs([code for code in range(128) if members.fullmatch(chr(code))]))
    return _without(inside) if kind.startswith("NOT_") else inside


def _folded(parts: list[tuple[int, int]], flags: int) -> Intervals:
    if not flags & re.IGNORECASE:
        return tuple(parts)
    (first, last), = parts
    if last > 0xFFFF and first < last:
        # `re` has a rule of its own for such ranges; it is asked about each character there is.
        matches = re.compile(f"[\\U{first:08x}-\\U{last:08x}]", re.ASCII | re.IGNORECASE).fullmatch
        return tuple(byte_runs([code for code in range(0x110000) if matches(chr(code))]))
    twins = [ord(chr(code).swapcase()) for code in range(first, min(last, 127) + 1) if chr(code).isalpha()]
    return _union([*parts, *((code, code) for code in twins)])


def _union(parts: Iterable[tuple[int, int]]) -> Intervals:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(parts):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _without(parts: Intervals) -> Intervals:
    edges = [-1, *(edge for first, last in parts for edge in (first, last)), 0x110000]
    gaps = tuple((edges[i] + 1, edges[i + 1] - 1) for i in range(0, len(edges), 2))
    return tuple((first, last) for first, last in gaps if first <= last)
