"""The leaves of a JSON schema as regexes: strings, integers, constants, names, and how JSON writes them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from fractions import Fraction

from shared_runtime.constrain.regex.charset import NOTHING, CharSet
from shared_runtime.constrain.regex.factoring import factored
from shared_runtime.constrain.regex.pattern_search import search_tree
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.constrain.regex.regex_tree import Node, alternate, concat, repeat
from shared_runtime.constrain.schema.integer_range import integer_range
from shared_runtime.constrain.schema.json_text import any_text_but, json_text
from shared_runtime.constrain.schema.schema_formats import FORMATS
from shared_runtime.constrain.schema.whitespace import Layout
from shared_runtime.errors import (
    GrammarSyntaxError,
    JumpforwardError,
    UnsatisfiableConstraintError,
    UnsupportedConstraintError,
)

Schema = dict[str, object]

MAX_LISTED = 1_000
MAX_DIGITS = 100

CHARACTER = normalise(r'[^\x00-\x1f"\\]|\\(["\\/bfnrt]|u00[01][0-9a-fA-F])').tree
"""A character of a JSON string: itself, or an escape where it needs one. Other `\\u` escapes only respell."""


def string_tree(own: Schema, at: str) -> Node:
    """A string by lengths, pattern or format. `own` are the keywords of place `at`.

    Raises:
        UnsupportedConstraintError: pattern with lengths, an unknown format, a construct outside the regex dialect.
        GrammarSyntaxError: a value of the wrong type. UnsatisfiableConstraintError: no string fits.
    """
    low, high = bounds(own, "minLength", "maxLength", at)
    text = own.get("pattern", own.get("format"))
    if text is None:
        return quoted(repeat(CHARACTER, low, high))
    if own.keys() & {"minLength", "maxLength"} or {"pattern", "format"} <= own.keys():
        raise unsupported(" with ".join(sorted(own)), at)
    if not isinstance(text, str):
        raise GrammarSyntaxError("pattern and format are texts", where=at)
    if "format" in own and text not in FORMATS:
        raise UnsupportedConstraintError(f"the format {short(text)} is not known", where=at,
                                         fix=f"use one of {', '.join(sorted(FORMATS))}, or a pattern")
    try:
        tree = normalise(FORMATS[text]).tree if "format" in own else search_tree(text)
        return quoted(factored(json_text(tree)))
    except JumpforwardError as error:
        error.message = f"pattern of {at}: {error.message}"
        error.args = (str(error),)
        raise


def integer_tree(own: Schema, at: str) -> Node:
    """An integer between bounds; with `multipleOf` the values are listed, at most `MAX_LISTED` of them.

    Raises:
        UnsupportedConstraintError: too many multiples, or a bound of more than `MAX_DIGITS` digits.
        GrammarSyntaxError: no number. UnsatisfiableConstraintError: no integer fits.
    """
    for word, value in own.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise GrammarSyntaxError(f"{word} is a number, not {short(value)}", where=at)
        if abs(value) >= 10**MAX_DIGITS:
            raise unsupported(f"{word} with more than {MAX_DIGITS} digits", at)
    numbers = {word: Fraction(str(value)) for word, value in own.items()}
    lows = [math.ceil(numbers[word]) for word in ("minimum",) if word in numbers]
    lows += [math.floor(numbers[word]) + 1 for word in ("exclusiveMinimum",) if word in numbers]
    highs = [math.floor(numbers[word]) for word in ("maximum",) if word in numbers]
    highs += [math.ceil(numbers[word]) - 1 for word in ("exclusiveMaximum",) if word in numbers]
    low, high = max(lows, default=None), min(highs, default=None)
    step = numbers.get("multipleOf", Fraction(1)).numerator  # an integer is a multiple of p/q where it is one of p
    if step <= 0:
        raise GrammarSyntaxError("multipleOf is a number above 0", where=at)
    if step == 1:
        tree = integer_range(low, high)
    elif low is None or high is None or (high - low) // step >= MAX_LISTED:
        raise unsupported(f"{', '.join(sorted(own))} with more than {MAX_LISTED} integers between the bounds", at)
    else:
        tree = literal_tree(map(str, range(low + -low % step, high + 1, step)))
    if tree == NOTHING:
        raise UnsatisfiableConstraintError(f"no integer fits {', '.join(sorted(own))}", where=at)
    return tree


def literal_tree(texts: Iterable[str]) -> Node:
    """Any of the texts, as they stand; common beginnings and ends are written once."""
    return factored(alternate(concat(CharSet.char(ord(char)) for char in text) for text in texts))


def constants_tree(values: Iterable[object], layout: Layout, at: str) -> Node:
    """Any of the JSON values. A whole number that is written 1.0 may come as 1, too: to JSON Schema they are equal.

    Raises:
        UnsupportedConstraintError: an infinity, which is no JSON.
    """
    return factored(alternate(_constant(value, layout, at) for value in values))


def _constant(value: object, layout: Layout, at: str) -> Node:
    match value:
        case dict():
            pairs = [concat([key_tree(name), layout.colon, _constant(inner, layout, at)])
                     for name, inner in value.items()]
            return in_brackets("{}", pairs, layout)
        case list():
            return in_brackets("[]", [_constant(inner, layout, at) for inner in value], layout)
        case float() if not math.isfinite(value):
            raise unsupported(f"the number {value} in a constant", at)
        case float() if value.is_integer() and abs(value) < 2**53:
            return literal_tree([json.dumps(value), str(int(value))])
        case _:
            return literal_tree([json.dumps(value, ensure_ascii=False)])


def in_brackets(brackets: str, items: Iterable[Node], layout: Layout) -> Node:
    """Items one behind the other, in a pair of brackets."""
    opening, closing = map(literal_tree, brackets)
    listed = [part for item in items for part in (layout.comma, item)][1:]
    return concat([opening, layout.pad, *listed, *([layout.pad] if listed else []), closing])


def key_tree(name: str) -> Node:
    """A property's name in its one usual spelling."""
    return literal_tree([json.dumps(name, ensure_ascii=False)])


def other_keys(names: Iterable[str]) -> Node:
    """Every property name, in its one usual spelling, but `names`."""
    return quoted(factored(json_text(any_text_but(names))))


def quoted(inner: Node) -> Node:
    """Between quotation marks."""
    quote = CharSet.char(ord('"'))
    return concat([quote, inner, quote])


def bounds(own: Schema, low: str, high: str, at: str) -> tuple[int, int | None]:
    """The counts of keywords `low` and `high`; 0 and None where they are absent.

    Raises:
        GrammarSyntaxError: one is no count. UnsatisfiableConstraintError: they contradict each other.
    """
    found: list[int | None] = []
    for word, value in ((low, own.get(low, 0)), (high, own.get(high))):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0
                                  or value % 1):
            raise GrammarSyntaxError(f"{word} is a count, not {short(value)}", where=at)
        found.append(None if value is None else int(value))
    least, most = found[0] or 0, found[1]
    if most is not None and least > most:
        raise UnsatisfiableConstraintError(f"{low} {least} is more than {high} {most}", where=at)
    return least, most


def kind_of(value: object) -> str:
    """The JSON type of a value; `integer` also for 1.0, as the standard has it."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case dict():
            return "object"
        case list():
            return "array"
        case _:
            return "null"


def unsupported(what: str, at: str) -> UnsupportedConstraintError:
    """The refusal of a construct at a place of the schema."""
    return UnsupportedConstraintError(f"{what} cannot be held by a regex here, and is not dropped", where=at,
                                      fix="take it out of the schema, or use --stage 4 with a grammar backend")


def short(value: object) -> str:
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
