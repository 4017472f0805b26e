"""What the libraries silently get wrong: each entry still true of the library, and told to whoever it concerns."""

from __future__ import annotations

import importlib.metadata
import json
import re
from dataclasses import replace

import jsonschema
import llguidance
import pytest

from shared_runtime.conformance.case_file import Case
from shared_runtime.conformance.target import all_targets
from shared_runtime.conformance.verdict import Judge
from shared_runtime.constrain.libraries.known_deviations import Deviation, ListedDeviationError, read_deviations
from shared_runtime.constrain.schema.conjoined_schema import conjoined_schema
from shared_runtime.constrain.schema.json_schema_checks import features, read_schema
from shared_runtime.constraint import Constraint
from shared_runtime.errors import UnsupportedConstraintError
from shared_runtime.policy import StageOptions
from stages.stage4_backends.base_grammar_backend import DEVIATIONS, REGISTRY
from stages.stage4_backends.llguidance_backend import LLGuidanceGrammarBackend
from tests.unit.stage4_helpers import BACKENDS, backend, context, real_tokenizer, whole

LISTED = read_deviations(DEVIATIONS)
SHOWN = [entry for entry in LISTED if entry.schema and not entry.refuse]
SEEN = [entry for entry in LISTED if entry.feature and not entry.refuse]
REFUSED = [entry for entry in LISTED if entry.refuse]

# Asks for nothing that a library drops, and must not be warned about.
HARMLESS = (
    {"type": "object", "properties": {"a": {"type": "string", "enum": ["x", "y"]}}, "required": ["a"]},
    {"type": ["string", "null"]}, {"type": "array", "items": {"type": "integer"}, "minItems": 1, "uniqueItems": False},
    {"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"const": 1}, {"type": "null"}], "title": "t"},
    {"$defs": {"x": {"type": "integer"}}, "$ref": "#/$defs/x"}, {"allOf": [{"type": "integer"}]},
    {"type": "string", "pattern": "^[a-z]+$"}, {"type": "string", "minLength": 1, "maxLength": 3},
    {"minimum": 3, "maxLength": 2}, {"required": ["a"]}, {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    {"type": "object", "patternProperties": {"^a": {}, "^b": {}}, "additionalProperties": False},
    {"type": "integer", "minimum": 3, "anyOf": [{"maximum": 5}, {"exclusiveMinimum": 70}], "$comment": "not"},
    {"not": False}, {"type": "array", "minContains": 2}, {"then": {"const": 1}},
)


def allows(schema: str, text: str) -> bool:
    """What `jsonschema` says, formats included."""
    read = json.loads(schema)
    kind = jsonschema.validators.validator_for(read, default=jsonschema.Draft202012Validator)
    return bool(kind(read, format_checker=jsonschema.FormatChecker()).is_valid(json.loads(text)))


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry.id)
def test_an_entry_names_its_backend_and_the_version_it_was_seen_in(entry: Deviation) -> None:
    assert entry.backend in BACKENDS
    assert importlib.metadata.version(entry.library) == entry.version, "look whether the library has been mended"


@pytest.mark.parametrize("entry", SHOWN, ids=lambda entry: entry.id)
def test_the_library_still_gets_it_wrong(entry: Deviation) -> None:
    """Fails when the library is mended: then the entry goes."""
    made = backend(entry.backend).init_value(Constraint.json_schema(entry.schema))
    assert entry.accepts or entry.refuses
    if entry.accepts:
        assert not allows(entry.schema, entry.accepts)
        assert whole(made.grammar.copy(), entry.accepts)
    if entry.refuses:
        assert allows(entry.schema, entry.refuses)
        assert not whole(made.grammar.copy(), entry.refuses)


@pytest.mark.parametrize("entry", REFUSED, ids=lambda entry: entry.id)
def test_what_the_library_refuses_is_refused_in_our_words(entry: Deviation) -> None:
    """Fails when the library has learned it."""
    one = backend(entry.backend)
    assert isinstance(one, LLGuidanceGrammarBackend)
    read = json.dumps(read_schema(Constraint.json_schema(entry.schema)))
    alone = llguidance.LLMatcher(one._tokenizer(), llguidance.LLMatcher.grammar_from_json_schema(read), log_level=0)
    assert alone.is_error()
    with pytest.raises(ListedDeviationError, match=re.escape(entry.effect)):
        one.init_value(Constraint.json_schema(entry.schema))


@pytest.mark.parametrize("entry", SEEN, ids=lambda entry: entry.id)
def test_whoever_it_concerns_is_warned(entry: Deviation) -> None:
    assert entry.schema, "what a schema shows has a reproducer"
    made = backend(entry.backend).init_value(Constraint.json_schema(entry.schema))
    assert any(entry.effect in text for text in made.warnings)


@pytest.mark.parametrize("entry", SEEN, ids=lambda entry: entry.id)
def test_strict_refuses_it(entry: Deviation) -> None:
    with pytest.raises(UnsupportedConstraintError, match="another --backend"):
        REGISTRY.create(entry.backend, context(strict=True)).init_value(Constraint("json_schema", entry.schema))


@pytest.mark.parametrize("entry", SEEN, ids=lambda entry: entry.id)
def test_it_is_seen_inside_of_a_tag_too(entry: Deviation) -> None:
    tag = Constraint.structural_tag({"structures": [{"begin": "<a>", "schema": json.loads(entry.schema), "end": ""}],
                                     "triggers": ["<a"]})
    assert any("structures[0]" in text for text in backend(entry.backend).init_value(tag).warnings)


@pytest.mark.parametrize("name", ["xgrammar", "llguidance"])
@pytest.mark.parametrize("schema", HARMLESS, ids=json.dumps)
def test_nobody_is_warned_of_nothing(name: str, schema: dict[str, object]) -> None:
    known = {entry.feature for entry in SEEN if entry.backend == name}
    read = read_schema(Constraint.json_schema(schema))
    asked = conjoined_schema(read) if name == "xgrammar" else read
    assert known.isdisjoint(feature.name for feature in features(asked))


@pytest.mark.parametrize(("schema", "verdict"), [
    ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "listed_deviation"),
    ({"type": "array", "items": {"type": "integer"}, "uniqueItems": False}, "right"),
])
def test_a_case_that_is_refused_for_an_entry_is_a_listed_deviation(schema: dict[str, object], verdict: str) -> None:
    """And nothing else: a case file may expect the refusal, and a refusal without an entry stays wrong."""
    case = Case(line=1, id="mine", kind="json_schema", constraint=Constraint.json_schema(schema), accept=("[1, 2]",))
    judge = Judge(real_tokenizer(), options=StageOptions(whitespace="any", strict=True))
    target, = (target for target in all_targets() if (target.spec.id, target.backend) == (4, "xgrammar"))
    found = judge.judge(case, target)
    assert found.verdict == verdict
    assert (found.deviation is not None and "issues/" in found.deviation) == (verdict == "listed_deviation")
    expected = judge.judge(replace(case, expect="error_preferred"), target)
    assert expected.verdict == "right"
    other = replace(case, constraint=Constraint.json_schema({"$ref": "#/nowhere"}))
    assert judge.judge(other, target).verdict == "WRONG"
