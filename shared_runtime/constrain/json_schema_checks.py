"""Reading a JSON schema before a library does: syntax, the places inside, and what libraries are known to drop.

A grammar library may take a schema and leave a part of it out without saying so. What a schema asks for is a list
of features here; each stage keeps, per backend, which of them its library drops.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shared_runtime.constrain.charset import CharSet
from shared_runtime.constrain.json_schema_rules import check_schema
from shared_runtime.constrain.json_schema_walk import Schema, subschemas
from shared_runtime.constrain.regex_dialect import normalise
from shared_runtime.constrain.regex_tree import render, repeat
from shared_runtime.constrain.spellable import Speller
from shared_runtime.constraint import Constraint
from shared_runtime.errors import GrammarSyntaxError

_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_ANNOTATIONS = frozenset({"$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "title", "description",
                          "default", "examples", "deprecated", "readOnly", "writeOnly"})
_LENGTHS = frozenset({"minLength", "maxLength"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern", "format",
                     "minLength", "maxLength", "minItems", "maxItems"})
# What may stand in a JSON string as it is: no quotation mark, no backslash, no control character.
_JSON_UNSAFE = CharSet.of([(0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C)])
_FIXES_TEXT = frozenset({"pattern", "format", "enum", "const"})
# One character of a JSON string, as it may be written: itself, or an escape that is no half of a surrogate pair.
_JSON_CHARACTER = normalise(r'[^\x00-\x1f"\\]|\\["\\/bfnrt]'
                            r'|\\u([0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})').tree


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that a schema asks for, and the place where it does (a JSON pointer)."""

    name: str
    path: str


def read_schema(constraint: Constraint) -> Schema | bool:
    """The schema of a `json_schema` or `json_object` constraint, as JSON values in the order of its text.

    Raises:
        GrammarSyntaxError: not JSON (with its offset), or no schema (with the JSON pointer of the keyword).
    """
    if constraint.kind == "json_object":
        return {"type": "object"}
    try:
        schema: Schema | bool = json.loads(constraint.source)
        check_schema(schema)
    except json.JSONDecodeError as error:
        raise GrammarSyntaxError(f"the schema is not JSON: {error.msg}", offset=error.pos,
                                 where=f"json_schema, position {error.pos}") from None
    except RecursionError:
        raise GrammarSyntaxError("the schema is nested too deep", where="json_schema") from None
    return schema


def features(schema: object) -> Iterator[Feature]:
    """What a schema asks for: each assertion keyword by its name, and the combinations that libraries stumble on."""
    for path, inner in subschemas(schema):
        for keyword in inner:
            if keyword not in _ANNOTATIONS and inner[keyword] is not False:
                yield Feature(keyword, path)
        for name in _combinations(inner):
            yield Feature(name, path)
        if isinstance(inner.get("format"), str):
            yield Feature(f"format:{inner['format']}", path)
    if _recursive(schema):
        yield Feature("recursion", "")


def _combinations(schema: Schema) -> Iterator[str]:
    asserted = set(schema) - _ANNOTATIONS
    if len(_list(schema, "allOf")) > 1 or ("allOf" in schema and asserted - {"allOf"}):
        yield "allOf with more"
    for key in ("anyOf", "oneOf"):
        if key in schema and _loses_siblings(schema, key, asserted - {key}):
            yield f"{key} with more"
    if "oneOf" in schema and not _disjoint(_list(schema, "oneOf")):
        yield "overlapping oneOf"
    if "$ref" in schema and asserted - {"$ref"}:
        yield "$ref with more"
    if ("enum" in schema or "const" in schema) and _loses_checks(schema, asserted - {"enum", "const"}):
        yield "enum with more"
    if "pattern" in schema and _LENGTHS & asserted:
        yield "pattern with length"
    if "format" in schema and (_LENGTHS | {"pattern"}) & asserted:
        yield "format with more"
    if "multipleOf" in schema and schema.get("type") != "integer":
        yield "multipleOf of a number"
    if "type" not in schema and asserted & _BOUNDS:
        yield "bounds without type"
    if set(map(str, _list(schema, "required"))) - set(_map(schema, "properties")):
        yield "required but undeclared"
    if asserted <= {"type"} and (not asserted or {"object", "array"} & set(_types(schema))):
        yield "free JSON"


def _loses_siblings(schema: Schema, key: str, others: set[str]) -> bool:
    untyped = any(not isinstance(branch, dict) or not {"type", "enum", "const", "$ref"} & set(branch)
                  for branch in _list(schema, key))
    return bool(others - {"type"}) or ("type" in others and untyped)


def _loses_checks(schema: Schema, others: set[str]) -> bool:
    values = _list(schema, "enum") if "enum" in schema else [schema.get("const")]
    types = _types(schema)
    return bool(others - {"type"}) or ("type" in others and not all(_type_of(value) & set(types) for value in values))


def _disjoint(branches: list[object]) -> bool:
    """Whether no value can be in two branches, as far as types and listed values show."""
    seen = set[str]()
    for branch in branches:
        if not isinstance(branch, dict):
            return False
        if "enum" in branch or "const" in branch:
            listed = _list(branch, "enum") if "enum" in branch else [branch.get("const")]
            here = {json.dumps(value, sort_keys=True) for value in listed}
            if any(_type_of(value) & seen for value in listed):
                return False
        else:
            here = set(_types(branch)) | ({"integer"} if "number" in _types(branch) else set())
            if not here or any(_type_of(json.loads(value)) & here for value in seen - _TYPES):
                return False
        if here & seen:
            return False
        seen |= here
    return True


def _type_of(value: object) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number", "integer"} if value.is_integer() else {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case _:
            return {"object"}


def _types(schema: Schema) -> list[str]:
    named = schema.get("type", [])
    return [str(name) for name in named] if isinstance(named, list) else [str(named)]


def _list(schema: Schema, key: str) -> list[object]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _map(schema: Schema, key: str) -> Mapping[str, object]:
    value = schema.get(key)
    return value if isinstance(value, dict) else {}


def _recursive(schema: object) -> bool:
    """Whether a reference leads to a schema that it stands inside of."""
    places = dict(subschemas(schema))
    edges = {path: {str(inner["$ref"]).removeprefix("#") for below, inner in places.items()
                    if "$ref" in inner and (below == path or below.startswith(path + "/"))} for path in places}

    def reaches(start: str) -> bool:
        seen, stack = set[str](), list(edges[start])
        while stack:
            here = stack.pop()
            if here == start:
                return True
            if here not in seen:
                seen.add(here)
                stack += edges.get(here, ())
        return False

    return any(reaches(path) for path in places)


def with_plain_patterns(schema: object, speller: Speller) -> object:
    """The schema with every `pattern` in normal form, anchored, and without what would need an escape in JSON.

    For libraries that put a pattern between quotation marks as it is: `a"b` would end the string. A string that has a
    length and no pattern gets one: under a length, xgrammar 0.2.9 lets control characters through, which no JSON
    string may hold, and no escapes.

    Raises:
        ConstraintError: a pattern is not of the dialect, or only texts with such characters match it.
    """
    if isinstance(schema, list):
        return [with_plain_patterns(item, speller) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: value if key in ("enum", "const", "default", "examples") else with_plain_patterns(value, speller)
             for key, value in schema.items()}
    if isinstance(schema.get("pattern"), str):
        tree = speller.restrict(normalise(schema["pattern"]).tree, less=_JSON_UNSAFE)
        plain["pattern"] = f"^({render(tree, negated_classes=False)})$"
    elif schema.get("type") == "string" and _LENGTHS & schema.keys() and not _FIXES_TEXT & schema.keys():
        bounds: list[Any] = [plain.pop("minLength", 0), plain.pop("maxLength", None)]
        low, high = (None if bound is None else int(bound) for bound in bounds)
        tree = speller.restrict(repeat(_JSON_CHARACTER, low or 0, high))
        plain["pattern"] = f"^({render(tree, negated_classes=False)})$"
    return plain
