"""What the libraries silently get wrong: each entry still true of the library, and told to whoever it concerns."""

from __future__ import annotations

import importlib.metadata
import json

import jsonschema
import pytest

from shared_runtime.constrain.json_schema_checks import features
from shared_runtime.constrain.known_deviations import Deviation, read_deviations
from shared_runtime.constraint import Constraint
from shared_runtime.errors import UnsupportedConstraintError
from stages.stage4_backends.base_grammar_backend import DEVIATIONS, REGISTRY
from tests.unit.stage4_helpers import BACKENDS, backend, context, whole

LISTED = read_deviations(DEVIATIONS)
SEEN = [entry for entry in LISTED if entry.feature]

# Asks for nothing that a library drops, and must not be warned about.
HARMLESS = (
    {"type": "object", "properties": {"a": {"type": "string", "enum": ["x", "y"]}}, "required": ["a"]},
    {"type": ["string", "null"]}, {"type": "array", "items": {"type": "integer"}, "minItems": 1, "uniqueItems": False},
    {"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"const": 1}, {"type": "null"}], "title": "t"},
    {"$defs": {"x": {"type": "integer"}}, "$ref": "#/$defs/x"}, {"allOf": [{"type": "integer"}]},
    {"type": "string", "pattern": "^[a-z]+$"}, {"type": "string", "minLength": 1, "maxLength": 3},
)


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry.id)
def test_an_entry_names_its_backend_and_the_version_it_was_seen_in(entry: Deviation) -> None:
    assert entry.backend in BACKENDS
    assert importlib.metadata.version(entry.library) == entry.version, "look whether the library has been mended"


@pytest.mark.parametrize("entry", SEEN, ids=lambda entry: entry.id)
def test_the_library_still_lets_it_through(entry: Deviation) -> None:
    """Fails when the library is mended: then the entry goes."""
    schema = json.loads(entry.schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(entry.accepts), schema, format_checker=jsonschema.FormatChecker())
    made = backend(entry.backend).init_value(Constraint.json_schema(schema))
    assert whole(made.grammar, entry.accepts)
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
    assert known.isdisjoint(feature.name for feature in features(schema))
