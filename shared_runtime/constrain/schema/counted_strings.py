r"""JSON strings of a bounded length, in a form whose masks xgrammar keeps.

As the pattern `(character){1,20}`, where a character may be an escape, every token of more than one character leaves a
rule of the library, and what leaves a rule is checked token by token each time a mask is asked for: 50 ms a mask. Here
each count of characters that may still come is a rule of its own, which holds the closing quotation mark:

    string_0_2 ::= "\"" | [plain] string_0_1 | escape string_0_1

So a mask depends on the rule alone, the library works it out once (10 ms), and later ones take 10 us. Measured with
xgrammar 0.2.9 and 49,152 tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.constrain.regex.regex_tree import Alternate, Node, alternate, render
from shared_runtime.constrain.regex.spellable import Speller
from shared_runtime.constrain.schema.json_text import JSON_CHARACTER

MOST_RULES = 256
"""Longer strings are left to the pattern: the library's own work on so long a chain grows faster than the chain."""

_MARKED = re.compile(r'^(\w+) ::= Regex\("\^\[(\d+),(\d*)\]\$", json_string=true\)$', re.MULTILINE)
_CHARACTER, _ESCAPE = "string_character", "string_escape"

Bounds = tuple[int, int | None]


def marked_pattern(low: int, high: int | None) -> str | None:
    """A pattern that stands for a string of `low` to `high` characters until `write_out`; None for one too long.

    No pattern of a schema is written like it: those all stand in a group.
    """
    return f"^[{low},{'' if high is None else high}]$" if max(low, high or 0) <= MOST_RULES else None


def is_written_out(text: str) -> bool:
    """Whether a text has a grammar in it that `write_out` has put rules into."""
    return f"{_CHARACTER} ::= " in text


def write_out(grammar: str, speller: Speller) -> str:
    """The library's text of a schema's grammar, its marked patterns replaced by rules. Nothing else is changed."""
    found = {name: (int(low), int(high) if high else None) for name, low, high in _MARKED.findall(grammar)}
    if not found:
        return grammar
    tree = speller.restrict(JSON_CHARACTER)
    branches = tree.branches if isinstance(tree, Alternate) else (tree,)
    plain = [node for node in branches if isinstance(node, CharSet)]
    ways = [*map(_class, plain)]
    rules = []
    if len(plain) < len(branches):
        ways.append(_ESCAPE)
        rules.append(_regex_rules(_ESCAPE, alternate(node for node in branches if not isinstance(node, CharSet))))
    rules.append(f"{_CHARACTER} ::= {' | '.join(ways)}")
    grammar = _MARKED.sub(lambda mark: f"{mark[1]} ::= {_CHARACTER}{{{mark[2]}, {mark[3] or -1}}}", grammar)
    for name, bounds in found.items():
        grammar = grammar.replace(f'"\\"" {name} "\\""', f'"\\"" {_name(bounds)}')
    rules += [_rule(bounds, ways) for bounds in _needed(found.values())]
    return "\n".join([grammar.rstrip("\n"), *rules, ""])


def _needed(wanted: Iterable[Bounds]) -> Iterator[Bounds]:
    """Every rule that a wanted one leads to, once."""
    seen: set[Bounds] = set()
    waiting = list(wanted)
    while waiting:
        bounds = waiting.pop()
        if bounds in seen:
            continue
        seen.add(bounds)
        yield bounds
        if bounds[1] != 0:
            waiting.append(_behind(bounds))


def _rule(bounds: Bounds, ways: list[str]) -> str:
    ends = ['"\\""'] if bounds[0] == 0 else []
    goes_on = [f"{way} {_name(_behind(bounds))}" for way in ways] if bounds[1] != 0 else []
    return f"{_name(bounds)} ::= {' | '.join([*ends, *goes_on])}"


def _behind(bounds: Bounds) -> Bounds:
    """What may come behind one character."""
    low, high = bounds
    return max(0, low - 1), None if high is None else high - 1


def _name(bounds: Bounds) -> str:
    return f"string_{bounds[0]}_{'any' if bounds[1] is None else bounds[1]}"


def _class(chars: CharSet) -> str:
    """A class with every code point written out, so that none of them means anything to the library."""
    return "[" + "".join(f"{_code(first)}-{_code(last)}" for first, last in chars.intervals) + "]"


def _code(point: int) -> str:
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _regex_rules(name: str, tree: Node) -> str:
    """The rules that the library makes of a regex, under another name than `root`."""
    import xgrammar

    text = str(xgrammar.Grammar.from_regex(render(tree, negated_classes=False)))
    return re.sub(r"\broot(?=\b|_\d)", name, text.rstrip("\n"))
