"""Reading a JSON schema before a library does, and what libraries are known to stumble on in it.

A grammar library may take a schema and leave a part of it out without saying so. What a schema asks for is a list
of features here; each stage keeps, per backend, which of them its library drops.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from shared_runtime.constrain.regex.charset import CharSet
from shared_runtime.constrain.regex.pattern_search import search_tree
from shared_runtime.constrain.regex.regex_overlap import overlap, small_budget
from shared_runtime.constrain.regex.regex_tree import Node, concat
from shared_runtime.constrain.schema.finite_schema import finite_part
from shared_runtime.constrain.schema.json_schema_rules import check_schema
from shared_runtime.constrain.schema.json_schema_walk import Schema, subschemas
from shared_runtime.constrain.schema.tidy_schema import ASSERTIONS, kinds_of, tidy_schema
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, GrammarSyntaxError

_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_LENGTHS = frozenset({"minLength", "maxLength"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that a schema asks for, and the place where it does (a JSON pointer)."""

    name: str
    path: str


AskedSchema = tuple[str, object]
"""A schema as a library gets it to see, behind the place where it stands."""


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """What a library is given, and the schemas in it: what those ask for, it may drop."""

    text: str
    asked: tuple[AskedSchema, ...] = ()


def read_schema(constraint: Constraint, where: str = "json_schema") -> Schema | bool:
    """The schema of a `json_schema` or `json_object` constraint, tidied, in the order of its text.

    Args:
        where: its place, for errors.

    Raises:
        GrammarSyntaxError: not JSON (with its offset), or no schema (with the JSON pointer of the keyword).
        UnsatisfiableConstraintError: no finite text fits it.
    """
    if constraint.kind == "json_object":
        return {"type": "object"}
    try:
        schema: object = json.loads(constraint.source)
        check_schema(schema)
        read = finite_part(tidy_schema(schema))
    except json.JSONDecodeError as error:
        raise GrammarSyntaxError(f"the schema is not JSON: {error.msg}", offset=error.pos,
                                 where=f"{where}, position {error.pos}") from None
    except RecursionError:
        raise GrammarSyntaxError("the schema is nested too deep", where=where) from None
    except ConstraintError as error:
        error.where = where + (error.where or "").removeprefix("json_schema")
        raise
    assert isinstance(read, dict | bool)
    return read


def features(schema: object) -> Iterator[Feature]:
    """What a schema asks for: each assertion keyword by its name, and the combinations that libraries stumble on.

    Args:
        schema: as `read_schema` gives it.
    """
    for path, inner in subschemas(schema):
        for keyword in inner:
            if keyword in ASSERTIONS:
                yield Feature(keyword, path)
        if isinstance(inner.get("format"), str):
            yield Feature(f"format:{inner['format']}", path)
        for name in _combinations(inner):
            yield Feature(name, path)


def may_be_number(schema: object) -> bool:
    """Whether a number may fit, as far as the schema's own words show; a reference may lead anywhere."""
    if not isinstance(schema, dict):
        return schema is True
    if "enum" in schema or "const" in schema:
        values = _list(schema, "enum") if "enum" in schema else [schema.get("const")]
        return any("number" in kinds_of(value) for value in values)
    return "type" not in schema or not {"number", "integer"}.isdisjoint(_types(schema))


def _combinations(schema: Schema) -> Iterator[str]:
    asserted = set(schema) & ASSERTIONS
    for key in ("allOf", "anyOf", "oneOf", "$ref"):
        if key in schema and _loses_siblings(schema, key, asserted - {key}):
            yield f"{key} with more"
    if len(_list(schema, "allOf")) > 1:
        yield "allOf with more"
    if "oneOf" in schema and not _disjoint(_list(schema, "oneOf")):
        yield "overlapping oneOf"
    listed = "enum" if "enum" in schema else "const"
    if listed in schema and asserted - {listed}:
        yield "enum with more"
    yield from _of_strings_and_numbers(schema, asserted)
    yield from _of_objects(schema, asserted)


def _of_strings_and_numbers(schema: Schema, asserted: set[str]) -> Iterator[str]:
    if "pattern" in schema and _LENGTHS & asserted:
        yield "pattern with length"
    if "format" in schema and (_LENGTHS | {"pattern"}) & asserted:
        yield "format with more"
    if "multipleOf" in schema and ("number" in _types(schema) or "type" not in schema):
        yield "multipleOf of a number"
    if _excludes_near(schema):
        yield "whole number excluded near the other bound"
    if "multipleOf" in schema and _BOUNDS & asserted:
        yield "multipleOf with bounds"


def _excludes_near(schema: Schema) -> bool:
    bounds: Mapping[str, Any] = {key: schema[key] for key in _BOUNDS & schema.keys()}
    lows, highs = ([value for key, value in bounds.items() if end in key] for end in ("inimum", "aximum"))
    return bool(lows and highs) and min(highs) - max(lows) < 1 and any(
        float(value).is_integer() for key, value in bounds.items() if "exclusive" in key)


def _of_objects(schema: Schema, asserted: set[str]) -> Iterator[str]:
    patterned = "patternProperties" in schema
    is_open = schema.get("additionalProperties", True) is not False
    if patterned and is_open:
        yield "patternProperties of an open object"
    if patterned:
        yield from _overlaps(schema)
    undeclared = set(map(str, _list(schema, "required"))) - set(_map(schema, "properties"))
    if patterned and undeclared:
        yield "required by a pattern"
    if "propertyNames" in schema and (not is_open or {"properties", "required", "patternProperties"} & asserted):
        yield "propertyNames with more"
    if "minProperties" in schema and (is_open or patterned):
        yield "minProperties of an open object"


def _overlaps(schema: Schema) -> Iterator[str]:
    """Two patterns that one name may fit, and a pattern that fits a property's name."""
    patterns = [search_tree(pattern) for pattern in _map(schema, "patternProperties")]
    names: list[Node] = [concat(CharSet.char(ord(char)) for char in name) for name in _map(schema, "properties")]
    crossing = _any_overlap(combinations(patterns, 2))
    if crossing:
        yield "patterns that overlap"
    if crossing or _any_overlap(product(names, patterns)):
        yield "overlapping patternProperties"


def _any_overlap(pairs: Iterable[tuple[Node, Node]]) -> bool:
    budget = small_budget()
    try:
        return any(overlap(*pair, budget) for pair in pairs)
    except ConstraintError:
        return True  # too much to be compared


def _loses_siblings(schema: Schema, key: str, others: set[str]) -> bool:
    """Whether something stands beside `key` that its branches do not say themselves."""
    if others != {"type"} or key in ("allOf", "$ref"):
        return bool(others)
    return not all(isinstance(branch, dict) and (kinds := _kinds(branch)) and kinds <= _with_integer(schema)
                   for branch in _list(schema, key))


def _kinds(branch: Schema) -> set[str]:
    """The types that a branch names by itself; none when it does not."""
    if "enum" in branch or "const" in branch:
        values = _list(branch, "enum") if "enum" in branch else [branch.get("const")]
        return {next(iter(kinds_of(value))) for value in values}
    return set(_types(branch))


def _with_integer(schema: Schema) -> set[str]:
    types = set(_types(schema))
    return types | ({"integer"} if "number" in types else set())


def _disjoint(branches: list[object]) -> bool:
    """Whether no value can be in two branches, as far as types and listed values show."""
    seen = set[str]()
    for branch in branches:
        if not isinstance(branch, dict):
            return False
        if "enum" in branch or "const" in branch:
            listed = _list(branch, "enum") if "enum" in branch else [branch.get("const")]
            here = {json.dumps(value, sort_keys=True) for value in listed}
            if any(kinds_of(value) & seen for value in listed):
                return False
        else:
            here = set(_types(branch)) | ({"integer"} if "number" in _types(branch) else set())
            if not here or any(kinds_of(json.loads(value)) & here for value in seen - _TYPES):
                return False
        if here & seen:
            return False
        seen |= here
    return True


def _types(schema: Schema) -> list[str]:
    named = schema.get("type", [])
    return [str(name) for name in named] if isinstance(named, list) else [str(named)]


def _list(schema: Schema, key: str) -> list[object]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _map(schema: Schema, key: str) -> Mapping[str, object]:
    value = schema.get(key)
    return value if isinstance(value, dict) else {}
