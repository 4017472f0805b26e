"""The places in a JSON Schema where another schema stands."""

from __future__ import annotations

from collections.abc import Iterator

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
