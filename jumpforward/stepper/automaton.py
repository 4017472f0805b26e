"""The automaton of a constraint as a graph that people can read: over characters, minimal, chains as one edge."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.regex.char_fsm import CharFSM, make_deterministic_fsm
from shared_runtime.constrain.regex.charset import LAST_CODE_POINT, CharSet
from shared_runtime.constrain.regex.regex_dialect import escape_choice, normalise
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.grammar_limits import GrammarLimits

_LIMITS = GrammarLimits(compile_timeout=5.0, max_states=5_000)


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from one drawn state to another.

    Attributes:
        start, end: states. label: the characters that go this way, or the whole text of a chain.
        inside: the states of a chain between `start` and `end`, in order; () for a plain edge.
    """

    start: int
    end: int
    label: str
    inside: tuple[int, ...] = ()


@dataclass(frozen=True)
class Automaton:
    """A minimal deterministic automaton over characters; state 0 is the start, and every state can reach acceptance.

    Attributes:
        intervals: (first, last, key) closed code-point intervals, ascending: which key a character has.
        rows: per state, key -> next state. finals: the accepting states.
    """

    intervals: list[tuple[int, int, int]]
    rows: list[dict[int, int]]
    finals: frozenset[int]
    _by_key: dict[int, CharSet] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts: dict[int, list[tuple[int, int]]] = {}
        for first, last, key in self.intervals:
            parts.setdefault(key, []).append((first, last))
        self._by_key.update({key: CharSet.of(found) for key, found in parts.items()})

    def walk(self, text: str) -> int | None:
        """The state behind `text`, None where there is no way."""
        state = 0
        for char in text:
            key = next((key for first, last, key in self.intervals if first <= ord(char) <= last), None)
            after = None if key is None else self.rows[state].get(key)
            if after is None:
                return None
            state = after
        return state

    def edges(self, compressed: bool = True) -> list[Edge]:
        """The edges, those between the same two states as one; with `compressed`, chains of forced text as one, too.

        A chain is what jump-forward jumps over: states that do not accept, with one way on, which is one character.
        """
        plain = [Edge(state, end, label_of(chars)) for state in range(len(self.rows))
                 for end, chars in self._targets(state).items()]
        if not compressed:
            return plain
        ways_in: dict[int, list[Edge]] = {}
        for edge in plain:
            ways_in.setdefault(edge.end, []).append(edge)
        inner = {state for state in range(1, len(self.rows)) if self.forced(state) is not None
                 and len(ways_in[state]) == 1 and self._targets(ways_in[state][0].start)[state].single is not None}
        return [self._chain(edge, inner) for edge in plain if edge.start not in inner]

    def _chain(self, edge: Edge, inner: set[int]) -> Edge:
        """`edge`, on through every inner state behind it."""
        chars = self._targets(edge.start)[edge.end]
        if edge.end not in inner or chars.single is None:
            return edge
        text, passed, state = chr(chars.single), [], edge.end
        while state in inner:
            passed.append(state)
            forced = self.forced(state)
            assert forced is not None
            text, state = text + forced[0], forced[1]
        return Edge(edge.start, state, visible_text(text), tuple(passed))

    def forced(self, state: int) -> tuple[str, int] | None:
        """(character, next state) where exactly one character leads on and the text may not end; None elsewhere."""
        targets = self._targets(state)
        if state in self.finals or len(targets) != 1:
            return None
        (end, chars), = targets.items()
        return None if chars.single is None else (chr(chars.single), end)

    def _targets(self, state: int) -> dict[int, CharSet]:
        targets: dict[int, CharSet] = {}
        for key, end in self.rows[state].items():
            targets[end] = targets.get(end, CharSet(())) | self._by_key[key]
        return targets

    def near(self, state: int, distance: int) -> set[int]:
        """The states within `distance` edges of `state`, either way."""
        around: dict[int, set[int]] = {}
        for start, row in enumerate(self.rows):
            for end in row.values():
                around.setdefault(start, set()).add(end)
                around.setdefault(end, set()).add(start)
        found, queue = {state}, deque([(state, 0)])
        while queue:
            here, far = queue.popleft()
            for other in sorted(around.get(here, set()) - found) if far < distance else ():
                found.add(other)
                queue.append((other, far + 1))
        return found


def automaton_of(constraint: Constraint | None) -> Automaton | None:
    """The automaton of a regex or a choice; None for what is no regular language here, or too large to look at."""
    if constraint is None or constraint.kind not in ("regex", "choice"):
        return None
    pattern = constraint.source if constraint.kind == "regex" else escape_choice(constraint.choices)
    try:
        return minimal(make_deterministic_fsm(normalise(pattern).tree, Budget(_LIMITS)))
    except (ConstraintError, RecursionError):
        return None


def minimal(fsm: CharFSM) -> Automaton:
    """The smallest automaton of the same language: states that no text tells apart are one; dead ends are cut off.

    Moore's refinement: split the states until those of one class go, by every key, to one class.
    """
    alive = _alive(fsm)
    rows = [{key: end for key, end in row.items() if end in alive} for row in fsm.rows]
    group = [0 if state in fsm.finals else 1 for state in range(len(rows))]
    while True:
        seen: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        refined = []
        for state, row in enumerate(rows):
            ways = tuple(sorted((key, group[end]) for key, end in row.items()))
            refined.append(seen.setdefault((group[state], ways), len(seen)))
        if len(seen) == len(set(group)):
            break
        group = refined
    return _numbered(fsm, rows, refined)


def _alive(fsm: CharFSM) -> set[int]:
    back: dict[int, list[int]] = {}
    for start, row in enumerate(fsm.rows):
        for end in row.values():
            back.setdefault(end, []).append(start)
    alive, todo = set(fsm.finals), list(fsm.finals)
    while todo:
        for start in back.get(todo.pop(), []):
            if start not in alive:
                alive.add(start)
                todo.append(start)
    return alive | {0}


def _numbered(fsm: CharFSM, rows: list[dict[int, int]], group: list[int]) -> Automaton:
    """Classes become states, numbered breadth first from the start, keys in the order of their characters."""
    member = {number: state for state, number in reversed(list(enumerate(group)))}
    numbers = {group[0]: 0}
    order = [group[0]]
    for one in order:  # grows on the way
        for _, end in sorted(rows[member[one]].items()):
            if group[end] not in numbers:
                numbers[group[end]] = len(numbers)
                order.append(group[end])
    return Automaton(
        fsm.alphabet.intervals,
        [{key: numbers[group[end]] for key, end in rows[member[one]].items()} for one in order],
        frozenset(numbers[one] for one in order if member[one] in fsm.finals))


def label_of(chars: CharSet, most: int = 18) -> str:
    """A set of characters as a reader would write it: `a`, `0-9`, `not "`; cut off when it is long."""
    many = len(chars) > 0x8000
    parts = ["-".join(visible_text(chr(end)) for end in dict.fromkeys((first, last)))
             for first, last in (chars.complement() if many else chars).intervals]
    if many and not parts:
        return "any"
    text = ("not " if many else "") + " ".join(parts)
    return text if len(text) <= most else text[:most - 1] + "…"


def visible_text(text: str) -> str:
    """`text` with blanks and control characters as something to see."""
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    code = ord(char)
    if char in " \n":
        return "␣" if char == " " else "↵"
    if code < 32:
        return chr(0x2400 + code)
    return char if char.isprintable() and code < LAST_CODE_POINT else f"U+{code:04X}"


def text_alternative(automaton: Automaton, edges: Iterable[Edge]) -> str:
    """The graph in words, for people who do not see the picture."""
    ways = [f"{edge.start} to {edge.end} by {edge.label}"
            + (f" (a chain over {len(edge.inside)} states)" if edge.inside else "") for edge in edges]
    finals = ", ".join(map(str, sorted(automaton.finals)))
    return (f"A finite automaton with {len(automaton.rows)} states. It starts in state 0 and accepts in {finals}. "
            f"{len(ways)} ways: {'; '.join(ways)}.")
