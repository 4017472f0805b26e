"""The leaves of a JSON schema as a regex can hold them: strings, constants, and how JSON writes both."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from shared_runtime.constrain.charset import CharSet
from shared_runtime.constrain.regex_dialect import normalise
from shared_runtime.constrain.regex_tree import (
    Alternate,
    Concat,
    Empty,
    Node,
    Repeat,
    alternate,
    concat,
    render,
    repeat,
)
from shared_runtime.errors import (
    GrammarSyntaxError,
    JumpforwardError,
    UnsatisfiableConstraintError,
    UnsupportedConstraintError,
)

Schema = dict[str, object]

MAX_LISTED = 1_000

_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+\-]([01][0-9]|2[0-3]):[0-5][0-9])"
_YEAR = r"([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"  # there is no year 0
_DATE = (_YEAR + r"-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
         r"|02-(0[1-9]|1[0-9]|2[0-8]))")
_LABEL = r"[a-z0-9]([a-z0-9\-]{0,61}[a-z0-9])?"
_BYTE = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
FORMATS: Mapping[str, str] = {
    "date": _DATE, "time": _TIME, "date-time": f"{_DATE}T{_TIME}", "ipv4": rf"({_BYTE}\.){{3}}{_BYTE}",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "email": rf"[a-z0-9!#$%&'*+/=?\^_`{{|}}~\-]+(\.[a-z0-9!#$%&'*+/=?\^_`{{|}}~\-]+)*@({_LABEL}\.)+{_LABEL}",
    "uri": r"(https?|ftp)://[A-Za-z0-9.\-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~!$&'()*+,;=:@\-]*)*"
           r"(\?[A-Za-z0-9._~!$&'()*+,;=:@/?\-]*)?(#[A-Za-z0-9._~!$&'()*+,;=:@/?\-]*)?",
}
"""Formats as regexes whose every text is of that format, within a JSON string (29 February is left out)."""


def string_schema(own: Schema, at: str) -> Schema:
    """A string by lengths or by pattern; a format becomes its pattern. `own` are the keywords of place `at`.

    A pattern is taken as one for the whole string, which is narrower than the standard's "somewhere in it".

    Raises:
        UnsupportedConstraintError: pattern with lengths, an unknown format, a construct outside the regex dialect.
        GrammarSyntaxError: a value of the wrong type.
    """
    low, high = bounds(own, "minLength", "maxLength", at)
    limits: Schema = {"minLength": low}
    if high is not None:
        limits["maxLength"] = high
    text = own.get("pattern", own.get("format"))
    if text is None:
        return {"type": "string"} | limits
    if own.keys() & {"minLength", "maxLength"} or {"pattern", "format"} <= own.keys():
        raise unsupported(" with ".join(sorted(own)), at)
    if not isinstance(text, str):
        raise GrammarSyntaxError("pattern and format are texts", where=at)
    if "format" in own and text not in FORMATS:
        raise UnsupportedConstraintError(f"the format {short(text)} is not known", where=at,
                                         fix=f"use one of {', '.join(sorted(FORMATS))}, or a pattern")
    try:
        tree = normalise(FORMATS[text] if "format" in own else text).tree
    except JumpforwardError as error:
        error.message = f"pattern of {at}: {error.message}"
        error.args = (str(error),)
        raise
    return {"type": "string", "pattern": f"^({render(_json_text(tree))})$"}


def integer_schema(own: Schema, at: str) -> Schema:
    """An integer; between two bounds the values are listed, at most `MAX_LISTED` of them.

    Raises:
        UnsupportedConstraintError: too many values, or no bound on one side. GrammarSyntaxError: no number.
        UnsatisfiableConstraintError: no integer fits.
    """
    if not own:
        return {"type": "integer"}
    for word, value in own.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 2**53:
            raise GrammarSyntaxError(f"{word} is a number, not {short(value)}", where=at)
    numbers = {word: float(str(value)) for word, value in own.items()}
    low = max(math.ceil(numbers.get("minimum", -2**60)), math.floor(numbers.get("exclusiveMinimum", -2**60)) + 1)
    high = min(math.floor(numbers.get("maximum", 2**60)), math.ceil(numbers.get("exclusiveMaximum", 2**60)) - 1)
    if high - low >= MAX_LISTED:
        raise unsupported(f"{', '.join(sorted(own))} with more than {MAX_LISTED} integers between the bounds", at)
    step = numbers.get("multipleOf", 1)
    values = [value for value in range(low, high + 1) if step > 0 and value % step == 0]
    if not values:
        raise UnsatisfiableConstraintError(f"no integer fits {', '.join(sorted(own))}", where=at)
    return {"enum": values}


def literal_schema(values: object, types: set[str], at: str) -> Schema:
    """Those of the enumerated `values` that are of one of `types` (empty: of any).

    Raises:
        UnsatisfiableConstraintError: none is left. UnsupportedConstraintError: one that the library would change.
    """
    if not isinstance(values, list):
        raise GrammarSyntaxError("enum is a list of values", where=at)
    kept = [value for value in values if not types or kind_of(value) in types or
            (kind_of(value) == "integer" and "number" in types)]
    if not kept:
        raise UnsatisfiableConstraintError("no value is left in the enumeration", where=at)
    for value in kept:
        _check_literal(value, at)
    return {"enum": kept}


def _check_literal(value: object, at: str) -> None:
    """Refuse what the library writes as another value: large integers, infinities, keys that need an escape."""
    match value:
        case dict():
            for key, inner in value.items():
                if inside_quotes(key) != key:
                    raise unsupported(f"the key {short(key)} in a constant", at)
                _check_literal(inner, at)
        case list():
            for inner in value:
                _check_literal(inner, at)
        case bool() | None | str():
            return
        case int() | float():
            if not abs(value) <= 2**53:
                raise unsupported(f"the number {value} in a constant", at)


def _json_text(node: Node) -> Node:
    """The language inside a JSON string: quotes, backslashes and control characters as escapes."""
    match node:
        case Empty():
            return node
        case CharSet():
            escaped = [code for code in (*range(0x20), 0x22, 0x5C) if code in node]
            plain = node - CharSet.of((code, code) for code in escaped)
            return alternate([plain, *(concat(CharSet.char(ord(char)) for char in inside_quotes(chr(code)))
                                       for code in escaped)])
        case Concat(parts):
            return concat(map(_json_text, parts))
        case Alternate(branches):
            return alternate(map(_json_text, branches))
        case Repeat(item, low, high):
            return repeat(_json_text(item), low, high)


def bounds(own: Schema, low: str, high: str, at: str) -> tuple[int, int | None]:
    """The counts of keywords `low` and `high`; 0 and None where they are absent.

    Raises:
        GrammarSyntaxError: one is no count. UnsatisfiableConstraintError: they contradict each other.
    """
    least, most = own.get(low, 0), own.get(high)
    for word, value in ((low, least), (high, most)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise GrammarSyntaxError(f"{word} is a count, not {short(value)}", where=at)
    assert isinstance(least, int)
    if isinstance(most, int) and least > most:
        raise UnsatisfiableConstraintError(f"{low} {least} is more than {high} {most}", where=at)
    return least, most if isinstance(most, int) else None


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


def inside_quotes(text: str) -> str:
    """A text as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def short(value: object) -> str:
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
