"""What is no JSON Schema is said with its place, before any library sees it; what is one passes."""

from __future__ import annotations

import json

import pytest

from shared_runtime.errors import GrammarSyntaxError
from stages.stage5_backend_jump.json_schema_validation import validate_json_schema

BAD: list[tuple[str, str]] = [
    ("{", "position 1"), ('{"type": "object",}', "position"), ('{"minimum": NaN}', "NaN"),
    ('{"a": Infinity}', "Infinity"),
    ("[]", "json_schema"), ('"string"', "json_schema"), ("3", "json_schema"), ("null", "json_schema"),
    ('{"type": "strnig"}', "/type"), ('{"type": []}', "/type"), ('{"type": ["string", 3]}', "/type"),
    ('{"enum": []}', "/enum"), ('{"enum": "a"}', "/enum"), ('{"required": "a"}', "/required"),
    ('{"required": [1]}', "/required"), ('{"minLength": -1}', "/minLength"), ('{"maxItems": 1.5}', "/maxItems"),
    ('{"minItems": true}', "/minItems"), ('{"maxLength": 1e999}', "/maxLength"), ('{"minimum": "3"}', "/minimum"),
    ('{"exclusiveMinimum": true}', "/exclusiveMinimum"), ('{"multipleOf": 0}', "/multipleOf"),
    ('{"pattern": 3}', "/pattern"), ('{"properties": []}', "/properties"), ('{"properties": {"a": 3}}', "/properties"),
    ('{"items": "x"}', "/items"), ('{"items": [3]}', "/items"), ('{"anyOf": []}', "/anyOf"),
    ('{"allOf": {}}', "/allOf"),
    ('{"additionalProperties": 0}', "/additionalProperties"), ('{"not": null}', "/not"),
    ('{"properties": {"a": {"items": {"type": "nope"}}}}', "/properties/a/items/type"),
    ('{"$ref": 3}', "/$ref"), ('{"$ref": "#/$defs/no"}', "/$ref"), ('{"$ref": "https://x.org/y"}', "fetched"),
    ('{"$ref": "#nobody"}', "/$ref"), ('{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}', "itself"),
    ('{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}', "itself"),
    ('{"$ref": "#/enum/0", "enum": [3]}', "no schema"), ('{"$ref": "#/enum/9", "enum": [{}]}', "no schema"),
    ('{"type": "string", "minLength": 5, "maxLength": 2}', "above maxLength"),
    ('{"type": "integer", "minimum": 5, "maximum": 2}', "above maximum"),
]

GOOD: list[object] = [
    True, False, {}, {"type": ["string", "null"]}, {"type": ["string", "null"], "minLength": 5, "maxLength": 2},
    {"properties": {"$ref": {"type": "string"}, "type": {"enum": [None, 3, "x", [], {}]}}, "required": ["type"]},
    {"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"},
    {"$defs": {"a/b~c": {"type": "null"}}, "$ref": "#/$defs/a~1b~0c"},
    {"$defs": {"a b": True}, "$ref": "#/$defs/a%20b"},
    {"$defs": {"x": {"$anchor": "here", "type": "null"}}, "$ref": "#here"}, {"items": [], "additionalItems": False},
    {"items": [{"type": "null"}], "minItems": 2.0}, {"const": {"type": "strnig"}}, {"enum": [{"minLength": -1}]},
    {"multipleOf": 0.5, "minimum": -1e30}, {"allOf": [{"$ref": "#/allOf/1"}, {"type": "null"}]}, {"unknown": 3},
]


@pytest.mark.parametrize(("source", "said"), BAD, ids=lambda value: value[:40])
def test_what_is_no_schema_is_refused_and_the_place_named(source: str, said: str) -> None:
    with pytest.raises(GrammarSyntaxError) as caught:
        validate_json_schema(source)
    assert said in str(caught.value)


@pytest.mark.parametrize("schema", GOOD, ids=lambda value: json.dumps(value)[:40])
def test_what_is_a_schema_passes(schema: object) -> None:
    validate_json_schema(json.dumps(schema))


def test_deep_nesting_is_read_and_too_deep_nesting_is_an_error() -> None:
    validate_json_schema('{"items": ' * 100 + "{}" + "}" * 100)
    with pytest.raises(GrammarSyntaxError, match="deep"):
        validate_json_schema('{"items": ' * 100_000 + "{}" + "}" * 100_000)
