"""A layered drawing of an automaton as SVG: states in columns by distance from the start, our own, no library.

It can be looked at as it is, in the colour of the text around it; a page that knows the classes decides more. A state
is `<g data-state="3">`, the states inside a chain are in `data-inside` of its edge: a player marks where a request
stands by setting a class.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.sax.saxutils import escape

from jumpforward.stepper.automaton import Automaton, Edge, text_alternative

MOST_STATES = 200
_RADIUS = 15
_ROW = 64
_PARALLEL = 20
_LETTER = 7.3  # width of a letter of a label, in px
_PLAIN = "<style>:where(.jf-disc, .jf-ring, .jf-line) { fill: none; stroke: currentColor }</style>"
"""For where no page has rules; weaker than any rule that one has."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing: the SVG element, and the same in words."""

    svg: str
    text: str


def draw(automaton: Automaton, *, compressed: bool = True, around: int | None = None, distance: int = 3) -> Picture:
    """The whole automaton, or only what is near the state `around`.

    Args:
        automaton: what to draw. compressed: chains of forced text as one edge.
        around: the middle of a neighbourhood; None draws everything, up to `MOST_STATES` states, and else starts
            from state 0. distance: how many characters a neighbourhood reaches.
    """
    edges = automaton.edges(compressed)
    text = text_alternative(automaton, edges)
    drawn = {state for edge in edges for state in (edge.start, edge.end)} | {0}
    if around is None and len(drawn) > MOST_STATES:
        around = 0
    if around is not None:
        near = automaton.near(around, distance)
        edges = [edge for edge in edges if {edge.start, edge.end, *edge.inside} & near]
        whole = drawn
        drawn = {state for edge in edges for state in (edge.start, edge.end)} | {around} & whole
        text = f"{len(drawn)} of {len(automaton.rows)} states, those near state {around}. {text}"
    return Picture(_svg(automaton, drawn, edges, text), text)


def _svg(automaton: Automaton, drawn: Collection[int], edges: Sequence[Edge], text: str) -> str:
    plan = _plan(_columns(drawn, edges), edges)
    parts = ['<svg class="jf-fsm" role="img" xmlns="http://www.w3.org/2000/svg" '
             f'viewBox="0 0 {plan.width} {plan.height}" width="{plan.width}" height="{plan.height}" '
             'font-family="ui-monospace, monospace" font-size="12" fill="currentColor">'
             f'<title>{escape(text)}</title>{_PLAIN}',
             '<defs><marker id="jf-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
             'markerHeight="8" markerUnits="userSpaceOnUse" '
             'orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="var(--jf-ink, currentColor)"/></marker></defs>']
    for group in _by_ends(edges).values():
        parts += [_edge(edge, plan, 2 * index - len(group) + 1) for index, edge in enumerate(group)]
    parts += [_state(state, plan.places[state], state in automaton.finals) for state in sorted(drawn)]
    return "".join(parts) + "</svg>"


def _columns(drawn: Collection[int], edges: Sequence[Edge]) -> list[list[int]]:
    """The states in columns, so that edges lead to the right, except those that close a circle.

    A state stands one column behind the last one that leads to it, so the way through reads as a line; within a column
    states are ordered by where their edges come from.
    """
    ahead: dict[int, list[int]] = {state: [] for state in drawn}
    for edge in edges:
        ahead[edge.start].append(edge.end)
    order, forward = _forward_edges(sorted(drawn), ahead)
    level = dict.fromkeys(drawn, 0)
    for state in order:
        for end in forward[state]:
            level[end] = max(level[end], level[state] + 1)
    columns: list[list[int]] = [[] for _ in range(max(level.values()) + 1)]
    for state in sorted(drawn):
        columns[level[state]].append(state)
    for _ in range(3):
        for before, column in pairwise(columns):
            rank = {state: index for index, state in enumerate(before)}
            came = {state: _mean([rank[edge.start] for edge in edges if edge.end == state and edge.start in rank])
                    for state in column}
            column.sort(key=came.__getitem__)
    return columns


def _forward_edges(states: Sequence[int], ahead: dict[int, list[int]]) -> tuple[list[int], dict[int, list[int]]]:
    """The states in topological order, and their ways on without those that lead back into the path walked so far."""
    forward: dict[int, list[int]] = {state: [] for state in states}
    done: list[int] = []
    on_path: set[int] = set()
    seen: set[int] = set()
    for root in states:
        stack = [] if root in seen else [(root, iter(ahead[root]))]
        seen.add(root)
        on_path.update(state for state, _ in stack)
        while stack:
            state, ways = stack[-1]
            end = next(ways, None)
            if end is None:
                stack.pop()
                on_path.discard(state)
                done.append(state)
            elif end not in on_path:
                forward[state].append(end)
                if end not in seen:
                    seen.add(end)
                    on_path.add(end)
                    stack.append((end, iter(ahead[end])))
    return done[::-1], forward


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where each state stands, in which column, and how large the drawing is."""

    places: dict[int, tuple[float, float]]
    level: dict[int, int]
    width: int
    height: int


def _plan(columns: list[list[int]], edges: Sequence[Edge]) -> _Plan:
    level = {state: number for number, column in enumerate(columns) for state in column}
    gaps = [0.0] * len(columns)
    for edge in edges:
        if level[edge.end] == level[edge.start] + 1:
            gaps[level[edge.start]] = max(gaps[level[edge.start]], _LETTER * len(edge.label))
    longest = max(len(column) for column in columns)
    over = max((level[edge.end] - level[edge.start] for edge in edges), default=1)
    back = max((level[edge.start] - level[edge.end] for edge in edges), default=0)
    most = max((len(group) for group in _by_ends(edges).values()), default=1)
    top = 58 + max(_rise(over) if over > 1 else 0, _PARALLEL * (most - 1) // 2)
    places, x = {}, 54.0
    for number, column in enumerate(columns):
        shift = (longest - len(column)) / 2
        for index, state in enumerate(column):
            places[state] = (round(x, 1), round(top + (index + shift) * _ROW, 1))
        x += 2 * _RADIUS + 34 + gaps[number]
    last = max(place[0] for place in places.values())
    loops = max((_LETTER * len(edge.label) / 2 for edge in edges if edge.start == edge.end), default=0.0)
    below = max(_rise(back) + 14 if back else 0, _PARALLEL * (most - 1) // 2)
    bottom = top + (longest - 1) * _ROW + _RADIUS + 14 + below
    return _Plan(places, level, round(last + _RADIUS + 16 + loops), round(bottom))


def _rise(columns: int) -> int:
    """How far an edge over so many columns swings out."""
    return 22 + 9 * min(columns, 14)


def _state(state: int, place: tuple[float, float], final: bool) -> str:
    x, y = place
    ring = f'<circle cx="{x}" cy="{y}" r="{_RADIUS - 4}" class="jf-ring"/>' if final else ""
    arrow = (f'<path d="M{x - _RADIUS - 26} {y}H{x - _RADIUS - 2}" class="jf-line" '
             'marker-end="url(#jf-tip)"/>' if state == 0 else "")
    role = " ".join(name for name, yes in (("jf-start", state == 0), ("jf-final", final)) if yes)
    return (f'<g class="jf-state {role}" data-state="{state}">{arrow}'
            f'<circle cx="{x}" cy="{y}" r="{_RADIUS}" class="jf-disc"/>{ring}'
            f'<text x="{x}" y="{y + 4}" text-anchor="middle">{state}</text></g>')


def _by_ends(edges: Sequence[Edge]) -> dict[tuple[int, int], list[Edge]]:
    """The edges by start and end: chains of different texts may have both in common."""
    found: dict[tuple[int, int], list[Edge]] = {}
    for edge in edges:
        found.setdefault((edge.start, edge.end), []).append(edge)
    return found


def _edge(edge: Edge, plan: _Plan, aside: int) -> str:
    """One edge with its label; `aside` is 0, or how far it keeps from others between the same states."""
    (x1, y1), (x2, y2) = plan.places[edge.start], plan.places[edge.end]
    columns = plan.level[edge.end] - plan.level[edge.start]
    if edge.start == edge.end:
        path = f"M{x1 - 8} {y1 - _RADIUS + 2}C{x1 - 22} {y1 - 44} {x1 + 22} {y1 - 44} {x1 + 8} {y1 - _RADIUS + 2}"
        at = (x1, y1 - 40)
    elif columns == 1 and aside:
        middle = (y1 + y2) / 2 + aside * _PARALLEL
        path = f"M{x1 + _RADIUS} {y1}Q{round((x1 + x2) / 2, 1)} {round(middle, 1)} {x2 - _RADIUS - 1} {y2}"
        at = ((x1 + x2) / 2, (y1 + y2) / 2 + aside * _PARALLEL / 2 + (-5 if aside < 0 else 13))
    elif columns == 1:
        tilt = (y2 - y1) / (x2 - x1)
        path = (f"M{x1 + _RADIUS} {round(y1 + tilt * _RADIUS, 1)}"
                f"L{x2 - _RADIUS - 1} {round(y2 - tilt * _RADIUS, 1)}")
        at = ((x1 + x2) / 2, (y1 + y2) / 2 - 6)
    else:  # over the states between, or back under them
        up = -1 if columns > 1 else 1
        swing = up * 2 * _rise(abs(columns)) + aside * _PARALLEL
        y1, y2 = y1 + up * (_RADIUS - 2), y2 + up * (_RADIUS - 2)
        path = f"M{x1 + 5} {y1}Q{round((x1 + x2) / 2, 1)} {round((y1 + y2) / 2 + swing, 1)} {x2 - 5} {y2}"
        at = ((x1 + x2) / 2, (y1 + y2) / 2 + swing / 2 + (-5 if up < 0 else 13))
    kind = "jf-edge jf-chain" if edge.inside else "jf-edge"
    inside = f' data-inside="{" ".join(map(str, edge.inside))}"' if edge.inside else ""
    return (f'<g class="{kind}" data-start="{edge.start}" data-end="{edge.end}"{inside}>'
            f"<title>{escape(edge.label)}</title>"
            f'<path d="{path}" class="jf-line" fill="none" marker-end="url(#jf-tip)"/>'
            f'<text x="{round(at[0], 1)}" y="{round(at[1], 1)}" text-anchor="middle" class="jf-label">'
            f"{escape(edge.label)}</text></g>")
