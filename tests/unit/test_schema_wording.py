"""Every keyword of JSON Schema, alone and beside every other, said to each library: right, warned of, or refused."""

from __future__ import annotations

import itertools
import json
import random

import jsonschema
import pytest

from shared_runtime.constrain.schema.json_schema_checks import read_schema
from shared_runtime.constrain.schema.number_bounds import with_shorter_bounds
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, UnsatisfiableConstraintError
from tests.unit.stage4_helpers import backend, whole

Schema = dict[str, object]
INTEGER: Schema = {"type": "integer"}
WORDS: tuple[tuple[Schema, ...], ...] = (
    ({"enum": [1, "a", None]}, {"enum": [{"a": 1}, [1]]}), ({"const": 1}, {"const": {"a": 1}}, {"const": [1, 2]}),
    ({"minimum": 2},), ({"exclusiveMaximum": 2},), ({"multipleOf": 2}, {"multipleOf": 0.5}), ({"minLength": 2},),
    ({"maxLength": 2},), ({"pattern": "^a"}, {"pattern": "b"}), ({"format": "date"}, {"format": "ipv4"}),
    ({"minItems": 2},), ({"maxItems": 1},), ({"items": INTEGER}, {"items": False}, {"items": [{"type": "string"}]}),
    ({"prefixItems": [{"type": "string"}, INTEGER]},), ({"uniqueItems": True}, {"uniqueItems": False}),
    ({"contains": {"const": 7}},), ({"minContains": 2},), ({"unevaluatedItems": False},),
    ({"properties": {"a": INTEGER, "ab": INTEGER}}, {"properties": {"a": INTEGER, "b": False}}),
    ({"required": ["a"]}, {"required": ["z"]}), ({"additionalProperties": False}, {"additionalProperties": INTEGER}),
    ({"patternProperties": {"^a": INTEGER}}, {"patternProperties": {"^a": INTEGER, "b$": {"type": "string"}}}),
    ({"propertyNames": {"maxLength": 1}}, {"propertyNames": {"enum": ["a", "b"]}}), ({"minProperties": 2},),
    ({"maxProperties": 1},), ({"dependentRequired": {"a": ["b"]}},),
    ({"dependentSchemas": {"a": {"minProperties": 2}}},),
    ({"unevaluatedProperties": False},), ({"allOf": [INTEGER]}, {"allOf": [{"minimum": 2}, {"maximum": 5}]}),
    ({"anyOf": [INTEGER, {"type": "string"}]}, {"anyOf": [{"required": ["a"]}, {"required": ["z"]}]}),
    ({"oneOf": [INTEGER, {"type": "string"}]},), ({"not": {"const": 1}}, {"not": {}}),
    ({"if": INTEGER, "then": {"minimum": 2}},), ({"then": {"const": 1}},),
    ({"$ref": "#/$defs/x", "$defs": {"x": INTEGER}}, {"$ref": "#k", "$defs": {"x": {"$anchor": "k", "maximum": 4}}}),
    ({"$dynamicRef": "#k", "$defs": {"x": {"$dynamicAnchor": "k", "type": "integer"}}},),
    ({"title": "t", "default": 3, "x-guidance": {"whitespace_flexible": True}},),
)
ALONE = [schema for words in WORDS for schema in words]
BESIDE = [one | other for words, others in itertools.combinations(WORDS, 2) for one in words for other in others]
TEXTS = (
    "null", "true", "0", "1", "2", "3", "-1", "7", "0.5", "1.5", "2.25", '""', '"a"', '"b"', '"ab"', '"abc"',
    '"2024-01-02"', '"2023-02-29"', '"127.0.0.1"', '"01.2.3.4"', "[]", "[1]", "[1, 1]", "[1, 2]", '["a"]', '["a", 1]',
    '[1, "a"]', "[7]", "[7, 7]", '["a", 1, 2]', "{}", '{"a": 1}', '{"a": "x"}', '{"b": 1}', '{"b": "x"}', '{"ab": 1}',
    '{"ab": "x"}', '{"a": 1, "b": 2}', '{"a": 1, "ab": "x"}', '{"z": 1}', '{"z": "x"}', '{"\\u0061": "x"}',
    '{"\\u0061b": "x"}', '{"a": 1, "a": "x"}', '{"a": 1, "\\u0061": "x"}', '{"a": null}', '{"a": 1, "b": 2, "c": 3}',
)


def hold(name: str, schema: Schema, texts: tuple[str, ...] = TEXTS) -> bool:
    """The library's answer to each text is the validator's. False when it refuses the schema or gives a warning."""
    try:
        made = backend(name).init_value(Constraint.json_schema(schema))
    except ConstraintError:
        return False
    if made.warnings:
        return False
    right = jsonschema.Draft202012Validator(_as_2020(schema), format_checker=jsonschema.FormatChecker())
    for text in texts:
        expected, got = right.is_valid(json.loads(text)), whole(made.grammar.copy(), text)
        written_otherwise = json.dumps(json.loads(text)) != text
        assert got == expected or (expected and written_otherwise), (name, schema, text, expected)
    return True


def _as_2020(schema: Schema) -> Schema:
    """A list of `items` is of an older draft, and this validator takes it for no schema."""
    if isinstance(schema.get("items"), list):
        return {key: value for key, value in schema.items() if key != "items"} | {"prefixItems": schema["items"]}
    return schema


each_library = pytest.mark.parametrize("name", ["xgrammar", "llguidance"])


@each_library
@pytest.mark.parametrize("kind", [None, "object", "array", "string", "integer", "number"])
def test_a_keyword_alone_means_what_it_means(name: str, kind: str | None) -> None:
    served = [hold(name, schema if kind is None else {"type": kind} | schema) for schema in ALONE]
    assert sum(served) > len(ALONE) / 2, "refusing is not serving"


@each_library
def test_two_keywords_beside_each_other_mean_both(name: str) -> None:
    for schema in random.Random(name).sample(BESIDE, 150):
        hold(name, schema)


@each_library
@pytest.mark.slow
def test_any_two_keywords_beside_each_other_mean_both(name: str) -> None:
    for schema in BESIDE:
        hold(name, schema)
        hold(name, {"type": "object"} | schema)


@each_library
def test_numbers_between_any_bounds(name: str) -> None:
    rng = random.Random(7)
    for _ in range(60):
        low, high = sorted(rng.choice([rng.randint(-12, 99), round(rng.uniform(-3, 9), rng.randint(1, 3)), 0.25, 8.0])
                           for _ in range(2))
        bounds: Schema = {rng.choice(["minimum", "exclusiveMinimum"]): low}
        bounds |= {rng.choice(["maximum", "exclusiveMaximum"]): high} if rng.random() < 0.7 else {}
        near = [low, high, low + 0.1, high - 0.1, (low + high) / 2, round(high - 0.01, 1), int(low), int(high) + 1]
        values = [int(value) if float(value).is_integer() else round(value, 3) for value in near]
        texts = tuple(text for text in map(json.dumps, values) if "e" not in text and text != "-0")
        hold(name, {"type": rng.choice(["number", "integer"])} | bounds, texts)


def test_shorter_bounds_lie_within_and_only_where_they_help() -> None:
    whole_numbers: Schema = {"type": "number", "minimum": 1.0, "exclusiveMaximum": 8}
    assert with_shorter_bounds(whole_numbers) == whole_numbers
    ways = [{"minimum": 0.1, "maximum": 0.25}, {"minimum": 0.1, "maximum": 0.2}]
    assert with_shorter_bounds({"maximum": 0.25, "minimum": 0.1}) == {"allOf": [{"anyOf": ways}]}


ENDLESS = (
    ({"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}, "/properties/n"),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "array", "items": {"$ref": "#/$defs/x"}, "minItems": 1}}}, "/items"),
    ({"anyOf": [{"$ref": "#/$defs/x"}, False], "$defs": {"x": {"allOf": [{"$ref": "#/$defs/y"}]}, "y": {
        "type": "object", "required": ["v"], "properties": {"v": {"$ref": "#/$defs/x"}}}}}, "another"),
    ({"type": "object", "required": ["z"], "additionalProperties": False}, "`z` is required"),
    ({"type": "array", "minItems": 3, "prefixItems": [INTEGER], "items": False}, "minItems"),
    ({"type": "integer", "enum": ["a"]}, "nothing fits"), ({"type": "integer", "minimum": 2.2, "maximum": 2.8}, "lies"),
    ({"type": "number", "minimum": 2, "exclusiveMaximum": 2}, "lies"),
)


@each_library
@pytest.mark.parametrize(("schema", "named"), ENDLESS, ids=lambda value: str(value)[:60])
def test_a_schema_that_no_finite_text_fits_is_refused(name: str, schema: Schema, named: str) -> None:
    with pytest.raises(UnsatisfiableConstraintError, match=named):
        backend(name).init_value(Constraint.json_schema(schema))


@each_library
def test_false_is_refused_and_true_is_any_json(name: str) -> None:
    with pytest.raises(UnsatisfiableConstraintError, match="false"):
        backend(name).init_value(Constraint.json_schema("false"))
    assert whole(backend(name).init_value(Constraint.json_schema("true")).grammar, '{"a": [1, null]}')


@each_library
def test_a_part_that_nothing_finishes_is_not_begun(name: str) -> None:
    schema = {"type": "object", "properties": {"n": {"$ref": "#/$defs/x"}, "m": INTEGER}, "additionalProperties": False,
              "$defs": {"x": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/x"}}}}
    made = backend(name).init_value(Constraint.json_schema(schema)).grammar
    assert whole(made.copy(), '{"m": 1}')
    assert not whole(made.copy(), '{"n": [')
    single = made.vocabulary.byte_tokens
    assert all(made.accept_token(single[byte]) for byte in b'{"')
    assert not made.accept_token(single[ord("n")])


def test_references_lead_to_entries_at_the_root_and_annotations_are_gone() -> None:
    read = read_schema(Constraint.json_schema({
        "title": "t", "items": [{"$ref": "#/definitions/a~1b"}, {"$ref": "#deep"}], "additionalItems": False,
        "definitions": {"a/b": INTEGER, "unused": {"not": {}}, "c": {"$anchor": "deep", "uniqueItems": False}}}))
    assert read == {"prefixItems": [{"$ref": "#/$defs/a1b"}, {"$ref": "#/$defs/deep"}], "items": False,
                    "$defs": {"a1b": INTEGER, "deep": {}}}


@each_library
def test_a_schema_that_refers_to_itself_ends_twice_with_one_token(name: str) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": False}
    made = backend(name).init_value(Constraint.json_schema(schema)).grammar
    text = '{"a": {"a": {}'
    assert all(made.accept_token(made.vocabulary.byte_tokens[byte]) for byte in text.encode())
    assert whole(made, "}}")


@each_library
@pytest.mark.parametrize(("pattern", "inside", "outside"), [
    ("b", ['"abc"', '"b"'], ['"a"']), ("^a|b$", ['"ax"', '"xb"'], ['"xbx"']), (r"^\d$", ['"1"'], ['"12"', '"٣"']),
    ('^a"b$', [r'"a\"b"'], ['"ab"']), (r"^a\\$", [r'"a\\"'], ['"a"'])])
def test_a_pattern_is_searched_for_and_means_the_dialect(name: str, pattern: str, inside: list[str],
                                                         outside: list[str]) -> None:
    for schema in ({"type": "string", "pattern": pattern}, {"patternProperties": {pattern: INTEGER}, "type": "object",
                                                            "additionalProperties": False}):
        made = backend(name).init_value(Constraint.json_schema(schema)).grammar
        wrap = "{}" if "pattern" in schema else '{{{}: 1}}'
        assert all(whole(made.copy(), wrap.format(text)) for text in inside)
        assert not any(whole(made.copy(), wrap.format(text)) for text in outside)


def test_what_cannot_be_said_to_a_library_is_told_and_never_a_crash() -> None:
    """A name too long to be excluded, patterns too many to be compared, and a schema nested too deep."""
    long_name: Schema = {"type": "object", "properties": {"x" * 2000: INTEGER}}
    with pytest.raises(ConstraintError, match="too long"):
        backend("xgrammar").init_value(Constraint.json_schema(long_name))
    closed = Constraint.json_schema(long_name | {"additionalProperties": False})
    assert whole(backend("xgrammar").init_value(closed).grammar, json.dumps({"x" * 2000: 1}))
    hard = {f"^{index}(a|b)*a(a|b){{9}}$": INTEGER for index in range(40)}
    made = backend("xgrammar").init_value(Constraint.json_schema({"patternProperties": hard,
                                                                  "additionalProperties": False}))
    assert any("patternProperties" in text for text in made.warnings)
    deep: Schema = INTEGER
    for _ in range(2000):
        deep = {"items": deep}
    for name in ("xgrammar", "llguidance"):
        with pytest.raises(ConstraintError, match=r"too deep|not JSON"):
            backend(name).init_value(Constraint("json_schema", _dumped(deep)))


def _dumped(schema: Schema) -> str:
    depth = 0
    while "items" in schema:
        inner = schema["items"]
        assert isinstance(inner, dict)
        schema, depth = inner, depth + 1
    return '{"items": ' * depth + json.dumps(schema) + "}" * depth
