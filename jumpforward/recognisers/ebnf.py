"""Earley's recogniser over characters: any context-free grammar, left recursion and ambiguity included.

A set of the chart is known by what it was begun with, so texts that leave the same behind share it: over a part of
the grammar that a finite automaton could do, the sets become that automaton.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from jumpforward.recognisers.ebnf_grammar import Grammar, Intervals, Symbol, parse_grammar

Production = tuple[str, tuple[Symbol, ...]]


class TooMuchWork(Exception):
    """The recogniser gave up: the text is too long for a grammar this ambiguous."""


@dataclass(eq=False, slots=True)
class Place:
    """What is known after some text: the productions begun, how far, and where each began."""

    items: dict[tuple[int, int, Place], None] = field(default_factory=dict)
    waiting: dict[str, list[tuple[int, int, Place]]] = field(default_factory=dict)
    after: dict[str, Place | None] = field(default_factory=dict)
    complete: bool = False


class EbnfRecogniser:
    """Recognises the texts of a grammar, and their beginnings.

    Args:
        source: the grammar's text. max_items: how much work to do before giving up.

    Raises:
        GrammarSyntaxError: it does not parse.
    """

    def __init__(self, source: str, *, max_items: int = 2_000_000) -> None:
        grammar = parse_grammar(source)
        self._left = max_items
        self._productions = _productive(grammar)
        self._of: dict[str, list[int]] = {}
        for number, (name, _) in enumerate(self._productions):
            self._of.setdefault(name, []).append(number)
        self._nullable = _nullable(self._productions)
        self._start = grammar.start
        self._places: dict[frozenset[tuple[int, int, Place]], Place] = {}
        first = Place()
        self._close(first, [(number, 0, first) for number in self._of.get(self._start, [])], first)
        self.first: Place | None = first if first.items else None

    def accepts(self, text: str) -> bool:
        """Whether the whole text is in the language."""
        place = self.after(text)
        return place is not None and place.complete

    def viable(self, text: str) -> bool:
        """Whether some text of the language begins with `text`."""
        return self.after(text) is not None

    def after(self, text: str, place: Place | None = None) -> Place | None:
        """The place after `text`, from the start or from another place; None when nothing begins so.

        Raises:
            TooMuchWork: see `max_items`.
        """
        at = self.first if place is None else place
        for char in text:
            if at is None:
                return None
            if char not in at.after:
                at.after[char] = self._step(at, char)
            at = at.after[char]
        return at

    def next_characters(self, place: Place) -> Intervals:
        """Every code point that may come next, as intervals; some may overlap."""
        return tuple(interval for number, dot, _ in place.items
                     if not isinstance(symbol := self._symbol(number, dot), str) and symbol is not None
                     for interval in symbol)

    def _symbol(self, number: int, dot: int) -> Symbol | None:
        parts = self._productions[number][1]
        return parts[dot] if dot < len(parts) else None

    def _step(self, place: Place, char: str) -> Place | None:
        kept = [(number, dot + 1, begun) for number, dot, begun in place.items
                if not isinstance(symbol := self._symbol(number, dot), str) and symbol is not None
                and holds(symbol, ord(char))]
        if not kept:
            return None
        key = frozenset(kept)
        if key not in self._places:
            self._places[key] = Place()
            self._close(self._places[key], kept, self.first)
        return self._places[key]

    def _close(self, place: Place, items: Iterable[tuple[int, int, Place]], first: Place | None) -> None:
        """Add what follows from the items without reading anything."""
        stack = list(items)
        while stack:
            item = stack.pop()
            if item in place.items:
                continue
            self._left -= 1
            if self._left < 0:
                raise TooMuchWork("the grammar is too ambiguous for a text this long")
            place.items[item] = None
            number, dot, begun = item
            symbol = self._symbol(number, dot)
            if symbol is None:
                name = self._productions[number][0]
                place.complete |= name == self._start and begun is first
                stack += [(other, at + 1, where) for other, at, where in begun.waiting.get(name, [])]
            elif isinstance(symbol, str):
                place.waiting.setdefault(symbol, []).append(item)
                stack += [(other, 0, place) for other in self._of.get(symbol, [])]
                if symbol in self._nullable:  # it may have been completed here before this item came
                    stack.append((number, dot + 1, begun))


def holds(chars: Intervals, code_point: int) -> bool:
    """Whether ascending intervals hold a code point. Classes may overlap, so every one before it is looked at."""
    return any(first <= code_point <= last for first, last in chars[:bisect_right(chars, (code_point, 0x110000))])


def _productive(grammar: Grammar) -> list[Production]:
    """The productions that some text completes: without the others, whatever is begun can be finished."""
    every = [(name, parts) for name, ways in grammar.productions.items() for parts in ways]
    good: set[str] = set()
    while True:
        found = {name for name, parts in every if all(_fillable(part, good) for part in parts)}
        if found == good:
            return [(name, parts) for name, parts in every if all(_fillable(part, good) for part in parts)]
        good = found


def _fillable(part: Symbol, good: set[str]) -> bool:
    return part in good if isinstance(part, str) else part != ()


def _nullable(productions: list[Production]) -> set[str]:
    found: set[str] = set()
    while True:
        more = {name for name, parts in productions if all(isinstance(part, str) and part in found for part in parts)}
        if more == found:
            return found
        found = more
