"""The regex of a schema is the schema: neither more than it allows nor, where nothing is left out by name, less."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_runtime.constrain.libraries.regex_index import schema_regex
from shared_runtime.constrain.schema.schema_regex import what_is_left_out
from shared_runtime.errors import GrammarTimeoutError, UnsatisfiableConstraintError

INTEGER, STRING = {"type": "integer"}, {"type": "string"}


def fits(schema: object, text: str, *, loose: bool = True) -> bool:
    """Whether the regex of a schema takes the text."""
    regex = schema_regex(json.dumps(schema), "any" if loose else "compact")
    return re.fullmatch(regex, text, re.ASCII) is not None


def is_valid(schema: object, text: str) -> bool:
    """The independent judge, formats included."""
    judge = jsonschema.Draft202012Validator
    try:
        return bool(judge(schema, format_checker=judge.FORMAT_CHECKER).is_valid(json.loads(text)))
    except json.JSONDecodeError:
        return False


@pytest.mark.parametrize("depth", [12, 40, 900])
def test_what_would_be_too_long_is_known_before_it_is_made(depth: int) -> None:
    """Outlines writes an array's items twice: forty arrays in each other would be a trillion characters."""
    schema: dict[str, object] = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 2}
    with pytest.raises(GrammarTimeoutError, match=r"would have .* characters, and 50,000 are the most|too deep"):
        schema_regex(json.dumps(schema), "compact")


def test_many_optional_properties_and_values_are_refused_by_their_length() -> None:
    """Outlines writes, for each of them, all that may stand before it."""
    for count, fine in ((40, True), (110, False), (2000, False)):
        schema = {"type": "object", "properties": {f"p{index}": INTEGER for index in range(count)}}
        if fine:
            assert fits(schema, '{"p3":1,"p17":2}', loose=False) is False
            assert fits(schema, '{"p3": 1, "p17": 2}', loose=False)
            continue
        with pytest.raises(GrammarTimeoutError, match="50,000 are the most"):
            schema_regex(json.dumps(schema), "compact")
    with pytest.raises(GrammarTimeoutError, match="300,000 are the most"):
        schema_regex(json.dumps({"enum": [f"value {value}" for value in range(30_000)]}), "compact")
    with pytest.raises(GrammarTimeoutError, match="list fewer values"):
        schema_regex(json.dumps({"enum": [f"{value * 7919 % 999983}:{value}" for value in range(9000)]}), "compact")


def test_compact_is_the_same_where_a_comma_goes_with_an_optional_property() -> None:
    for required in ([], ["b"], ["c"]):
        schema = {"type": "object", "properties": dict.fromkeys("abc", INTEGER), "required": required}
        assert fits(schema, '{"a": 1, "b": 2, "c": 3}', loose=False)
        assert not fits(schema, '{"a": 1,"b": 2, "c": 3}', loose=False)


NAMED = {"type": "object", "properties": {"a": INTEGER}}
PAIR = {"type": "array", "prefixItems": [INTEGER, STRING]}
WHOLE = [
    ({"const": 1.0}, ["1", "1.0"], ["1.1", "true", '"1"']), ({"const": 18446744073709551617},
                                                             ["18446744073709551617"], ["18446744073709551616"]),
    ({"const": {'a"b': [1.0]}}, [r'{"a\"b":[1]}', r'{"a\"b":[1.0]}'], [r'{"a\"b":[2]}']),
    ({"type": "integer", "minimum": 0}, ["0", "9", "12345678901234567890"], ["-1", "01"]),
    ({"type": "integer", "exclusiveMaximum": -0.5, "minimum": -10**20}, ["-1", "-99999999999999999999"], ["0"]),
    ({"type": "integer", "minimum": 3, "maximum": 14, "multipleOf": 4.5}, ["9"], ["4", "18"]),
    ({"type": "integer", "multipleOf": 0.5}, ["3"], ["3.5"]),
    ({"type": "string", "pattern": "[0-9]"}, ['"a1b"', r'"\n1"', '"1"'], ['"ab"', '""']),
    ({"type": "string", "pattern": "^[a-z]+"}, ['"ab1"'], ['"1ab"']),
    ({"type": "string", "pattern": '^a"$'}, [r'"a\""'], ['"a"', '"a""']),
    ({"type": "string", "format": "date"}, ['"2024-02-29"', '"2000-02-29"'], ['"2023-02-29"', '"1900-02-29"']),
    ({"type": "string", "format": "uuid"}, ['"123E4567-e89b-12d3-a456-426614174000"'], ['"123e4567"']),
    (STRING, ['"\x7f"', r'"\u0001"', r'"\/"'], ['"\x01"', '"\n"']),
    (PAIR | {"items": False}, ["[]", "[1]", '[1,"a"]'], ['["a"]', '[1,"a",1]', "[1,1]"]),
    (PAIR | {"items": {"type": "null"}}, ["[]", '[1,"a",null,null]'], ['[1,null]', '[1,"a",1]']),
    (PAIR | {"items": {"type": "null"}, "minItems": 3, "maxItems": 4}, ['[1,"a",null]', '[1,"a",null,null]'],
     ['[1,"a"]', '[1,"a",null,null,null]']),
    (PAIR | {"items": {"type": "null"}, "maxItems": 1}, ["[]", "[1]"], ['[1,"a"]']),
    (PAIR | {"minItems": 2, "maxItems": 2}, ['[1,"a"]'], ["[1]", '[1,"a",2]']),
    (NAMED | {"additionalProperties": {"type": "null"}}, ["{}", '{"a":1}', '{"a":1,"b":null}', '{"b":null,"c":null}'],
     ['{"a":null}', '{"b":1}', '{"a":1,"a":null}', '{"b":null,"a":null}']),
    ({"type": "object", "additionalProperties": INTEGER, "required": ["b"]}, ['{"b":1}', '{"b":1,"a":2}'],
     ["{}", '{"a":1}', '{"b":null}']),
    ({"type": "object", "additionalProperties": INTEGER}, ["{}", r'{"\u0001":1,"\"":2}', '{"a":1,"b":2}'],
     ['{"a":"b"}', '{"a":1,}', '{"\x01":1}']),
    ({"type": "object", "properties": {"a": False, "b": INTEGER}, "unevaluatedProperties": False},
     ["{}", '{"b":1}'], ['{"a":1}', '{"c":1}']),
    ({"type": "object", "properties": {"enum": {"type": "string", "pattern": "^.$"}, "const": INTEGER},
      "required": ["enum"], "additionalProperties": False}, ['{"enum":"x"}', '{"enum":"x","const":1}'],
     ['{"enum":"xy"}', '{"enum":"""}', '{"enum":"x","const":""}']),
    ({"anyOf": [False, {"type": "integer", "minimum": 3, "maximum": 2}, {"type": "null"}]}, ["null"], ["3", "2"]),
    ({"type": "array", "items": False}, ["[]"], ["[1]"]),
    ({"type": "array", "prefixItems": [INTEGER, False, STRING]}, ["[]", "[1]"], ['[1,2]']),
    ({"$defs": {"a b": INTEGER}, "$ref": "#/$defs/a%20b"}, ["1"], ["null"]),
    (INTEGER | {"uniqueItems": False, "minProperties": 0, "not": False}, ["1"], ["null"]),
]


@pytest.mark.parametrize(("schema", "valid", "invalid"), WHOLE, ids=[json.dumps(schema) for schema, _, _ in WHOLE])
def test_a_language_is_whole(schema: object, valid: list[str], invalid: list[str]) -> None:
    """Not only sound: what the schema allows is in it, in the form that `json` writes."""
    for text in valid:
        assert is_valid(schema, text)
        assert fits(schema, text), text
    for text in invalid:
        assert not fits(schema, text), text
        assert not is_valid(schema, text) or text == '{"a":1,"a":null}'  # the last of equal names counts


@pytest.mark.parametrize(("schema", "left_out", "kept"), [
    (NAMED, '{"a":1,"b":[]}', '{"a":1}'), (PAIR, '[1,"a",{}]', '[1,"a"]'), ({"properties": {"a": INTEGER}}, "3", "{}"),
    ({"items": INTEGER}, "null", "[3]"), ({"anyOf": [{"type": "null"}, NAMED]}, '{"b":1}', "null"),
])
def test_what_is_left_out_is_named(schema: object, left_out: str, kept: str) -> None:
    """Values of any depth that a schema allows and does not describe: valid, and no part of the regex."""
    assert is_valid(schema, left_out)
    assert not fits(schema, left_out)
    assert is_valid(schema, kept)
    assert fits(schema, kept)
    assert what_is_left_out(json.dumps(schema))


@pytest.mark.parametrize("schema", [NAMED | {"additionalProperties": False}, PAIR | {"maxItems": 2}, INTEGER,
                                    {"type": "array", "items": INTEGER}, {"type": "object"}, "no schema"])
def test_nothing_is_said_to_be_left_out_where_nothing_is(schema: object) -> None:
    assert not what_is_left_out(json.dumps(schema))


VALUES: list[object] = [
    None, True, False, 0, 1, -1, 2, 7, 10, 99, 100, 1000, -20, 3.5, 0.5, -0.5, "", "a", "b", "ab", "abc", "xay", "1",
    "a1", "é", "\u0001", "\x7f", '"', "\\", "/", "😀", [], [1], [1, 2], ["a"], [1, "a"], ["a", 1], ["a", "b"],
    [[1], [2]], [None], [1, 2, 3], [1, "a", 2], [1, "a", 2, 3], ["a", 1, 2], {}, {"a": 1}, {"a": "x"}, {"b": 1},
    {"a": 1, "b": 2}, {"a": 1, "b": "x"}, {"c": 1}, {"a": 1, "c": "y"}, {"enum": "a"}, {'a"b': 1},
    {"ab": 1, "abc": 2}, {"a": [1]}]
"""Values that distinguish schemas; no whole number is written with a fraction, and names come in alphabetical order."""

SMALL = st.one_of(
    st.sampled_from([INTEGER, STRING, {"type": "null"}, {"type": "boolean"}, {"type": "number"}, False,
                     {"$ref": "#/$defs/natural"}]),
    st.dictionaries(st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
                    st.sampled_from([-21, -1, 0, 1, 2, 7, 50, 0.5, 1000, 99.5]), max_size=3).map(
                        lambda own: INTEGER | own),
    st.tuples(st.integers(0, 2), st.integers(0, 2)).map(
        lambda pair: STRING | {"minLength": pair[0], "maxLength": pair[0] + pair[1]}),
    st.sampled_from(["a", "^a", "a$", "^[^a]$", "[0-9]", "^.$", "a|^b$", "x?", '"', r"\\"]).map(
        lambda pattern: STRING | {"pattern": pattern}),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=4).map(lambda values: {"enum": values}),
    st.lists(st.sampled_from(["integer", "null", "string", "boolean"]), min_size=1, max_size=2, unique=True).map(
        lambda types: {"type": types}))


def _closed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.lists(st.sampled_from(["a", "ab", 'a"b', "b", "enum"]), max_size=3, unique=True).map(sorted)
    objects = names.flatmap(lambda keys: st.builds(
        lambda values, required, rest: {"type": "object", "properties": dict(zip(keys, values, strict=True)),
                                        "required": sorted(required), "additionalProperties": rest},
        st.tuples(*[inner] * len(keys)), st.sets(st.sampled_from(keys)) if keys else st.just(set()), st.just(False)))
    maps = inner.map(lambda value: {"type": "object", "additionalProperties": value})
    counts = st.fixed_dictionaries({}, optional={"minItems": st.integers(0, 2), "maxItems": st.integers(2, 4)})
    arrays = st.tuples(inner, counts).map(lambda pair: {"type": "array", "items": pair[0]} | pair[1])
    tuples = st.tuples(st.lists(inner, min_size=1, max_size=3), inner, counts).map(
        lambda parts: {"type": "array", "prefixItems": parts[0], "items": parts[1]} | parts[2])
    return st.one_of(objects, maps, arrays, tuples, st.lists(inner, min_size=1, max_size=3).map(
        lambda ways: {"anyOf": ways}))


@given(schema=st.recursive(SMALL, _closed, max_leaves=5))
@settings(max_examples=150, deadline=None)
def test_the_regex_takes_a_value_where_the_schema_does(schema: Any) -> None:
    """Both ways, value by value, where nothing is left out."""
    whole = {"$defs": {"natural": INTEGER | {"minimum": 0}}, "anyOf": [schema]}
    judge = jsonschema.Draft202012Validator(whole)
    try:
        regex = re.compile(schema_regex(json.dumps(whole), "any"), re.ASCII)
    except UnsatisfiableConstraintError:
        assert not any(map(judge.is_valid, VALUES))
        return
    for value in VALUES:
        text = json.dumps(value, ensure_ascii=False)
        assert (regex.fullmatch(text) is not None) == judge.is_valid(value), text
