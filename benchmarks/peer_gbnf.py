"""A regex or a choice as a grammar in llama.cpp's GBNF, which has no regexes of its own."""

from __future__ import annotations

from typing import assert_never

from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.constrain.regex.regex_dialect import escape_choice, normalise
from shared_runtime.constrain.regex.regex_tree import Alternate, Concat, Empty, Node, Repeat
from shared_runtime.constraint import Constraint


def gbnf_of(constraint: Constraint) -> str:
    """The grammar of a regex or choice.

    Raises:
        JumpforwardError: the regex is none.
    """
    pattern = escape_choice(constraint.choices) if constraint.kind == "choice" else constraint.source
    return f"root ::= {_text(normalise(pattern).tree)}\n"


def _text(node: Node) -> str:
    match node:
        case Empty():
            return '""'
        case CharSet():
            return "[" + "".join(_char(first) + ("" if first == last else f"-{_char(last)}")
                                 for first, last in node.intervals) + "]"
        case Concat():
            return " ".join(_group(part) for part in node.parts)
        case Alternate():
            return " | ".join(_text(branch) for branch in node.branches)
        case Repeat():
            high = "" if node.high is None else str(node.high)
            return f"{_group(node.item)}{{{node.low},{high}}}"
        case _:
            assert_never(node)


def _group(node: Node) -> str:
    return _text(node) if isinstance(node, CharSet | Empty) else f"({_text(node)})"


def _char(code_point: int) -> str:
    character = chr(code_point)
    if character.isascii() and character.isalnum():
        return character
    return f"\\U{code_point:08X}" if code_point > 0xFFFF else f"\\u{code_point:04X}"
