"""What makes a JSON value a JSON Schema: the type of each keyword's value, and references that lead somewhere."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from shared_runtime.constrain.regex.pattern_search import search_tree
from shared_runtime.constrain.schema.json_schema_walk import Schema, subschemas
from shared_runtime.errors import ConstraintError, GrammarSyntaxError, UnsatisfiableConstraintError

_TYPES = ("string", "number", "integer", "object", "array", "boolean", "null")
_PAIRS = (("minLength", "maxLength", "string"), ("minItems", "maxItems", "array"),
          ("minProperties", "maxProperties", "object"), ("minimum", "maximum", "number"),
          ("minimum", "maximum", "integer"))


def check_schema(schema: object) -> None:
    """Check that a JSON value is a schema.

    Raises:
        GrammarSyntaxError: it is none; `where` is the JSON pointer of the keyword.
        UnsupportedConstraintError: a pattern is beyond the dialect of `docs/regex.md`.
        UnsatisfiableConstraintError: bounds between which nothing lies, or a pattern that no text has.
        RecursionError: it is nested too deep to be read.
    """
    _require(_is_schema(schema), "", "a schema is an object, true or false", schema)
    for path, inner in subschemas(schema):
        _check(inner, path)
        _follow(inner, path, schema)


def _require(holds: bool, path: str, message: str, value: object) -> None:
    if not holds:
        raise GrammarSyntaxError(f"{message}, not {json.dumps(value, ensure_ascii=False)[:60]}",
                                 where=f"json_schema{path}")


def _is_schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _is_schemas(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _is_schema_map(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_type(value: object) -> bool:
    return all(one in _TYPES for one in value) and bool(value) if isinstance(value, list) else value in _TYPES


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and float(value).is_integer()


_RULES: tuple[tuple[Callable[[Any], bool], str, tuple[str, ...]], ...] = (
    (_is_type, f"must be one of {', '.join(_TYPES)}, or a list of them", ("type",)),
    (lambda value: isinstance(value, list) and bool(value), "must be a list with a value in it", ("enum",)),
    (_is_texts, "must be a list of property names", ("required",)),
    (_is_number, "must be a number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    (lambda value: _is_number(value) and value > 0, "must be a number above 0", ("multipleOf",)),
    (_is_count, "must be a whole number of at least 0", ("minLength", "maxLength", "minItems", "maxItems",
                                                         "minProperties", "maxProperties", "minContains")),
    (lambda value: isinstance(value, str), "must be a text", ("pattern", "format", "$ref", "$anchor")),
    (_is_schemas, "must be a list with a schema in it", ("allOf", "anyOf", "oneOf", "prefixItems")),
    (_is_schema_map, "must be an object of schemas", ("properties", "patternProperties", "$defs", "definitions",
                                                      "dependentSchemas")),
    (lambda value: _is_schema(value) or value == [] or _is_schemas(value), "must be a schema or schemas", ("items",)),
    (_is_schema, "must be a schema", ("additionalProperties", "additionalItems", "contains", "not", "if", "then",
                                      "else", "propertyNames", "unevaluatedItems", "unevaluatedProperties")),
)


def _check(schema: Schema, path: str) -> None:
    for holds, message, keywords in _RULES:
        for keyword in keywords:
            if keyword in schema:
                _require(holds(schema[keyword]), f"{path}/{keyword}", message, schema[keyword])
    values: dict[str, Any] = schema
    _check_patterns(values, path)
    for low, high, kind in _PAIRS:  # without a type, or with several, a value of another type may still do
        if values.get("type") == kind and values.get(low, -math.inf) > values.get(high, math.inf):
            raise GrammarSyntaxError(f"{values[low]} is above {high} {values[high]}: no {kind} is both",
                                     where=f"json_schema{path}/{low}")
    _check_range(values, path)


def _check_patterns(values: dict[str, Any], path: str) -> None:
    patterns = {f"patternProperties/{pattern}": pattern for pattern in values.get("patternProperties", ())}
    patterns |= {"pattern": values["pattern"]} if "pattern" in values else {}
    for at, pattern in patterns.items():
        try:
            search_tree(pattern)
        except ConstraintError as error:
            error.where = f"json_schema{path}/{at}, {error.where or 'the whole of it'}"
            raise


def _check_range(values: dict[str, Any], path: str) -> None:
    """Bounds of a number, exclusive ones too, between which none lies."""
    lows = [(values[key], key) for key in ("minimum", "exclusiveMinimum") if key in values]
    highs = [(values[key], key) for key in ("maximum", "exclusiveMaximum") if key in values]
    if values.get("type") not in ("number", "integer") or not lows or not highs:
        return
    (low, above), (high, below) = max(lows), min(highs, key=lambda end: (end[0], end[1] == "maximum"))
    shut = {above, below} == {"minimum", "maximum"}
    if values["type"] == "integer":
        low, high = (math.ceil(low) if above == "minimum" else math.floor(low) + 1,
                     math.floor(high) if below == "maximum" else math.ceil(high) - 1)
        shut = True
    if low > high or (low == high and not shut):
        raise UnsatisfiableConstraintError(f"no {values['type']} lies between {above} {values[above]} and {below} "
                                           f"{values[below]}", where=f"json_schema{path}/{above}")


def _follow(schema: object, path: str, root: object) -> None:
    """Resolve a chain of references, to something that is more than a reference."""
    seen: list[object] = []
    while isinstance(schema, dict) and "$ref" in schema:
        ref = schema["$ref"]
        where = f"json_schema{path}/$ref"
        if ref in seen:
            raise GrammarSyntaxError(f"{ref!r} refers to itself and to nothing else", where=where)
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise GrammarSyntaxError(f"{ref!r} is not in this schema, and nothing is fetched", where=where,
                                     fix="put it under $defs and refer to '#/$defs/...'")
        seen.append(ref)
        schema = resolve(ref, root)
        if not _is_schema(schema):
            raise GrammarSyntaxError(f"{ref!r} leads to no schema", where=where)


def resolve(ref: str, root: object) -> object:
    """What a reference inside this schema (`#`, a JSON pointer or an anchor behind it) names; None for nothing."""
    place = unquote(ref.removeprefix("#"))
    if place and not place.startswith("/"):
        return next((inner for _, inner in subschemas(root) if inner.get("$anchor") == place), None)
    found: Any = root
    for step in place.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isascii() and name.isdigit():
            found = found[int(name)] if int(name) < len(found) else None
        else:
            return None
    return found
