"""Texts as JSON writes them between quotation marks, as trees: for libraries that copy a pattern in there as it is."""

from __future__ import annotations

import json
from collections.abc import Iterable

from shared_runtime.constrain.regex.charset import EVERYTHING, CharSet
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constrain.regex.regex_tree import (
    EMPTY,
    Alternate,
    Concat,
    Empty,
    Node,
    Repeat,
    alternate,
    concat,
    repeat,
)

JSON_UNSAFE = CharSet.of([(0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C)])
"""What may not stand in a JSON string as it is: control characters, the quotation mark, the backslash."""

JSON_CHARACTER = normalise(r'[^\x00-\x1f"\\]|\\["\\/bfnrt]'
                           r'|\\u([0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})').tree
"""One character of a JSON string, in every way to write it, but for pairs of surrogates."""


def json_text(node: Node) -> Node:
    """The language of `node` between quotation marks: an escape where JSON needs one, and the shortest one."""
    match node:
        case Empty():
            return node
        case CharSet():
            escapes = [json.dumps(chr(code))[1:-1] for first, last in JSON_UNSAFE.intervals
                       for code in range(first, last + 1) if code in node]
            plain = node - JSON_UNSAFE
            short = _chars(text[1] for text in escapes if len(text) == 2)
            long = alternate(concat([_chars(digit), _chars(text[5] for text in escapes if text[:5] == f"\\u00{digit}")])
                             for digit in "01")
            return alternate([plain, concat([_chars("\\"), alternate([short, concat([*map(_chars, "u00"), long])])])])
        case Concat(parts):
            return concat(map(json_text, parts))
        case Alternate(branches):
            return alternate(map(json_text, branches))
        case Repeat(item, low, high):
            return repeat(json_text(item), low, high)


def _chars(chars: Iterable[str]) -> CharSet:
    return CharSet.of((ord(char), ord(char)) for char in chars)


def any_text_but(texts: Iterable[str]) -> Node:
    """Every text that is none of `texts`."""
    rest = list(texts)
    heads = {text[0] for text in rest if text}
    others = EVERYTHING - _chars(heads)
    return alternate([*([] if "" in rest else [EMPTY]), concat([others, repeat(EVERYTHING, 0, None)]),
                      *(concat([_chars(head),
                                any_text_but(text[1:] for text in rest if text.startswith(head))])
                        for head in sorted(heads))])
