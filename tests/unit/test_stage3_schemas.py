"""Schemas through Outlines: what it writes wrongly is mended or refused, each held against the library as it is."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outlines_core.json_schema import build_regex_from_schema

from shared_runtime.constrain.schema.regular_schema import MAX_NODES
from shared_runtime.constrain.schema.schema_formats import FORMATS
from shared_runtime.errors import (
    ConstraintError,
    GrammarSyntaxError,
    GrammarTimeoutError,
    UnsatisfiableConstraintError,
    UnsupportedConstraintError,
)
from stages.stage3_outlines.compat import schema_regex

INTEGER, STRING = {"type": "integer"}, {"type": "string"}


def fits(schema: object, text: str, *, loose: bool = True) -> bool:
    """Whether the stage's regex of a schema takes the text."""
    regex = schema_regex(json.dumps(schema), "any" if loose else "compact")
    return re.fullmatch(regex, text, re.ASCII) is not None


def library_takes(schema: object, text: str) -> bool:
    """Whether the library alone would."""
    return re.fullmatch(build_regex_from_schema(json.dumps(schema), "[ ]?"), text, re.ASCII) is not None


def is_valid(schema: object, text: str) -> bool:
    """The independent judge: JSON that validates, formats included."""
    try:
        value = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    except json.JSONDecodeError:
        return False
    judge = jsonschema.Draft202012Validator
    return bool(judge(schema, format_checker=judge.FORMAT_CHECKER).is_valid(value))


DROPPED = [
    ({"type": "string", "pattern": "^[0-9a-f]+$", "minLength": 2, "maxLength": 4}, '"xyz"', "maxLength"),
    ({"type": "number", "minimum": -2, "maximum": 2}, "20", "maximum, minimum"),
    ({"type": "integer", "multipleOf": 2}, "3", "multipleOf"),
    ({"type": "array", "items": INTEGER, "uniqueItems": True}, "[1,1]", "uniqueItems"),
    ({"type": "array", "items": INTEGER, "contains": {"const": 3}}, "[1]", "contains"),
    ({"type": "object", "properties": {"a": INTEGER}, "required": ["b"]}, '{"a":1}', "'b'"),
    ({"type": "object", "properties": {"a": INTEGER}, "minProperties": 1}, "{}", "minProperties"),
    ({"type": "object", "properties": {"a": INTEGER}, "required": ["a"], "dependentRequired": {"a": ["b"]}}, '{"a":1}',
     "dependentRequired"),
    ({"anyOf": [INTEGER, STRING], "minimum": 3}, "1", "minimum beside anyOf"),
    ({"$ref": "#/$defs/a", "$defs": {"a": INTEGER}, "minimum": 3}, "1", "minimum beside $ref"),
    ({"oneOf": [INTEGER, {"type": "number"}]}, "1", "oneOf"),
    ({"type": "integer", "not": {"const": 1}}, "1", "not"),
    ({"type": "string", "enum": ["a"], "minLength": 5}, '"a"', "minLength beside enum"),
]


@pytest.mark.parametrize(("schema", "wrong", "named"), DROPPED, ids=[named for _, _, named in DROPPED])
def test_what_the_library_drops_is_refused_by_name(schema: object, wrong: str, named: str) -> None:
    """The library takes an invalid text; when that changes, it has been mended, and the refusal can go."""
    assert not is_valid(schema, wrong)
    assert library_takes(schema, wrong)
    with pytest.raises(UnsupportedConstraintError) as caught:
        schema_regex(json.dumps(schema), "compact")
    assert named in str(caught.value)
    assert "#" in str(caught.value)


MENDED = [
    ({"type": "string", "pattern": "^.$"}, '"a"', '"""'),
    ({"type": "string", "pattern": r"^\s$"}, r'"\n"', '"\n"'),
    ({"type": "string", "format": "email"}, '"kim@example.org"', '""x"@example.org"'),
    ({"type": "string", "format": "time"}, '"12:00:00.5Z"', r'"12:00:00\x5"'),
    ({"type": "string", "format": "uri"}, '"https://a.b/c?d#e"', '"http://a.bc/"x"'),
    ({"type": "object", "properties": {'a"b': INTEGER}, "required": ['a"b']}, r'{"a\"b":1}', '{"a"b":1}'),
    ({"type": "integer", "enum": ["a", 1]}, "1", '"a"'),
    ({"type": "integer", "minimum": 0, "maximum": 9}, "7", "10"),
    ({"type": ["object", "null"], "properties": {"a": INTEGER}, "required": ["a"]}, "null", None),
    ({"type": "object", "additionalProperties": False}, "{}", None),
]


@pytest.mark.parametrize(("schema", "right", "wrong"), MENDED, ids=[right for _, right, _ in MENDED])
def test_what_the_library_writes_wrongly_is_mended(schema: object, right: str, wrong: str | None) -> None:
    assert fits(schema, right)
    assert is_valid(schema, right)
    if wrong is not None:
        assert not is_valid(schema, wrong)
        assert library_takes(schema, wrong)
        assert not fits(schema, wrong)


@pytest.mark.parametrize("schema", [
    {}, True, {"type": "object"}, {"type": "array"}, {"minimum": 3}, {"type": "object", "properties": {"a": {}}},
    {"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
    {"type": "object", "properties": {"c": {"$ref": "#"}}}, {"$ref": "#"}, {"title": "anything"},
], ids=json.dumps)
def test_nesting_without_end_is_refused_with_the_depth(schema: object) -> None:
    with pytest.raises(UnsupportedConstraintError, match=r"nests without end.*after 2 or 3 levels") as caught:
        schema_regex(json.dumps(schema), "compact")
    assert caught.value.first_stage == 4


@pytest.mark.parametrize(("source", "error"), [
    ('{"type": ', GrammarSyntaxError), ("[1]", GrammarSyntaxError), ('{"type": "strnig"}', GrammarSyntaxError),
    ('{"type": "array", "items": 3}', GrammarSyntaxError), ('{"anyOf": []}', GrammarSyntaxError),
    ('{"$ref": "#/$defs/none"}', GrammarSyntaxError), ('{"$ref": "https://a.b/c"}', UnsupportedConstraintError),
    ('{"enum": ["\\ud800"]}', GrammarSyntaxError), ('{"enum": []}', UnsatisfiableConstraintError),
    ('{"type": []}', UnsatisfiableConstraintError), ("false", UnsatisfiableConstraintError),
    ('{"type": "array", "items": {"type": "null"}, "minItems": 3, "maxItems": 1}', UnsatisfiableConstraintError),
    ('{"type": "integer", "minimum": 3, "maximum": 2}', UnsatisfiableConstraintError),
    ('{"type": "string", "format": "colour"}', UnsupportedConstraintError),
    ('{"type": "string", "pattern": "(?=a)"}', UnsupportedConstraintError),
    ('{"type": "string", "pattern": "("}', GrammarSyntaxError), ('{"const": 1e999}', UnsupportedConstraintError),
    ('{"const": NaN}', GrammarSyntaxError), ('{"type": "integer", "minimum": 1e300}', UnsupportedConstraintError),
    ('{"type": "array", "prefixItems": [{"type": "null"}], "items": false, "minItems": 2}',
     UnsatisfiableConstraintError), ("[" * 100_000, GrammarSyntaxError),
])
def test_bad_schemas_are_clear_errors(source: str, error: type[ConstraintError]) -> None:
    for _ in range(2):
        with pytest.raises(error) as caught:
            schema_regex(source, "compact")
        assert len(str(caught.value)) > 20


def test_references_are_written_out_within_a_bound() -> None:
    doubling: dict[str, object] = {"d0": INTEGER}
    for level in range(1, 20):
        ref = {"$ref": f"#/$defs/d{level - 1}"}
        doubling[f"d{level}"] = {"type": "array", "prefixItems": [ref, ref]}
    assert fits({"$defs": doubling, "$ref": "#/$defs/d2"}, "[[1,2],[3,4]]")
    with pytest.raises(GrammarTimeoutError, match=str(MAX_NODES)):
        schema_regex(json.dumps({"$defs": doubling, "$ref": "#/$defs/d19"}), "compact")
    assert fits({"$defs": {"a/b~c": INTEGER}, "$ref": "#/$defs/a~1b~0c"}, "5")


def test_compact_is_one_blank_behind_comma_and_colon() -> None:
    schema = {"type": "object", "properties": {"a, b": INTEGER, "c:d": {"enum": [{"x": [1, ",:"]}]}},
              "required": ["a, b", "c:d"]}
    text = json.dumps({"a, b": 1, "c:d": {"x": [1, ",:"]}})
    assert fits(schema, text, loose=False)
    for other in (json.dumps(json.loads(text), separators=(",", ":")), json.dumps(json.loads(text), indent=1)):
        assert not fits(schema, other, loose=False)
        assert fits(schema, other)
        assert is_valid(schema, other)


def test_any_whitespace_is_bounded() -> None:
    """Museum row 32: a run without bound lets a model write blank lines until the limit."""
    schema = {"type": "object", "properties": {"n": INTEGER}, "required": ["n"]}
    assert fits(schema, '{\n\t "n" \r: 1\n}')
    assert fits(schema, '{' + "\n" * 16 + '"n": 1}')
    assert not fits(schema, '{' + "\n" * 17 + '"n": 1}')


def test_the_mark_for_whitespace_is_never_part_of_the_schema() -> None:
    schema = {"enum": ["\ufdd0,\ufdd1", "x"]}
    assert fits(schema, '"\ufdd0,\ufdd1"', loose=False)
    assert not fits(schema, '","', loose=False)


SCALARS = st.one_of(
    st.just(INTEGER), st.just({"type": "number"}), st.just({"type": "boolean"}), st.just({"type": "null"}),
    st.just({"type": "string", "maxLength": 4}), st.sampled_from(sorted(FORMATS)).map(
        lambda name: {"type": "string", "format": name}),
    st.sampled_from([".{1,3}", r'^[^a]"\\?$', r"^\d{2}(-[a-z])?$", "é|天"]).map(
        lambda pattern: {"type": "string", "pattern": pattern}),
    st.lists(st.one_of(st.integers(-99, 99), st.text(max_size=3), st.none(), st.booleans()), min_size=1,
             max_size=3).map(lambda values: {"enum": values}),
    st.tuples(st.integers(-20, 0), st.integers(0, 30)).map(
        lambda pair: {"type": "integer", "minimum": pair[0], "exclusiveMaximum": pair[1] + 1}))


def _compound(inner: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[dict[str, object]]:
    names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=4)
    objects = st.dictionaries(names, inner, max_size=3).flatmap(lambda properties: st.lists(
        st.sampled_from(sorted(properties)), unique=True).map(
        lambda required: {"type": "object", "properties": properties, "required": required})
        if properties else st.just({"type": "object", "properties": {}}))
    arrays = st.tuples(inner, st.integers(0, 2), st.integers(0, 2)).map(lambda parts: {
        "type": "array", "items": parts[0], "minItems": parts[1], "maxItems": parts[1] + parts[2]})
    return st.one_of(objects, arrays, st.lists(inner, min_size=1, max_size=2).map(lambda ways: {"anyOf": ways}),
                     st.lists(inner, min_size=1, max_size=2).map(
                         lambda items: {"type": "array", "prefixItems": items}))


@given(schema=st.recursive(SCALARS, _compound, max_leaves=5), loose=st.booleans(), data=st.data())
@settings(max_examples=120, deadline=None)
def test_every_text_of_the_regex_is_json_of_the_schema(schema: dict[str, object], loose: bool,
                                                       data: st.DataObject) -> None:
    try:
        regex = schema_regex(json.dumps(schema), "any" if loose else "compact")
    except UnsupportedConstraintError:
        return
    text = data.draw(st.from_regex(re.compile(regex, re.ASCII), fullmatch=True))
    assert is_valid(schema, text), text
