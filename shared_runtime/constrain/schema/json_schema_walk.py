"""The places in a JSON Schema where another schema stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator

Schema = dict[str, object]

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLE = ("items", "additionalProperties", "unevaluatedProperties", "additionalItems", "unevaluatedItems", "not", "if",
           "then", "else", "contains", "propertyNames")


def subschemas(schema: object, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every object schema inside `schema`, itself first, with its JSON pointer."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key in _MAPS:
        if isinstance(schema.get(key), dict):
            for name, inner in schema[key].items():
                yield from subschemas(inner, f"{path}/{key}/{name}")
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            for index, inner in enumerate(schema[key]):
                yield from subschemas(inner, f"{path}/{key}/{index}")
    for key in _SINGLE:
        yield from subschemas(schema.get(key), f"{path}/{key}")


def map_subschemas(schema: Schema, change: Callable[[object], object]) -> Schema:
    """A copy of one object schema with `change` applied to each schema that stands directly in it."""
    changed: Schema = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            changed[key] = {name: change(inner) for name, inner in value.items()}
        elif key in _LISTS and isinstance(value, list):
            changed[key] = [change(inner) for inner in value]
        elif key in _SINGLE:
            changed[key] = change(value)
        else:
            changed[key] = value
    return changed
