"""JSON wherever a stage has it: what is finished validates, what is valid gets in, what is not stays out."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_runtime.constrain.using.walk import GrammarWalker
from shared_runtime.constraint import Constraint
from shared_runtime.errors import GrammarTimeoutError
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from tests.conformance.harness import TARGETS, Ask, Target, Walkers, each_target_with, in_language, run
from tests.conformance.walks import random_walk
from tests.conftest import EngineFactory
from tests.oracles.json_oracle import is_json_of
from tests.oracles.random_schema import Schema, compact, mutated, random_schema, random_value, schemas, spaced

SHIP: Schema = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 8}, "masts": {"type": "integer", "minimum": 1, "maximum": 5},
    "afloat": {"type": "boolean"}}, "required": ["name", "masts", "afloat"], "additionalProperties": False}
CARGO: Schema = {"type": "array", "items": {"enum": ["tea", "salt", "天气", 7, None]}, "minItems": 1, "maxItems": 3}

each_json_target = each_target_with("json_schema")


def _accepts(walker: GrammarWalker, constraint: Constraint, ids: list[int]) -> bool:
    with walker.start(constraint) as walk:
        return walk.feed_allowed(ids) == len(ids) and (walk.terminated or walk.accepting)


@each_json_target
@pytest.mark.parametrize("schema", [SHIP, CARGO], ids=["ship", "cargo"])
def test_finished_answers_parse_and_validate(target: Target, schema: Schema, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    constraint = Constraint.json_schema(schema)
    asks = [Ask("A ship: ", constraint, SamplingParams(max_new_tokens=60, temperature=1.0, seed=seed))
            for seed in range(4)]
    asks += [Ask("Once upon", sampling=SamplingParams(max_new_tokens=5)), Ask("A ship: ", constraint)]
    results = run(engine, asks)
    finished = [(ask, result) for ask, result in zip(asks, results, strict=True)
                if ask.constraint is not None and result.finish_reason == "stop"]
    assert len(finished) >= 3, [result.error for result in results]
    for ask, result in finished:
        assert in_language(ask.constraint, result.text), result.text


@each_target_with("json_object")
def test_a_finished_json_object_is_an_object(target: Target, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    close = {engine.tokenizer.spell(text)[0]: 6.0 for text in ("}", '"}', '":', '"', "{}")}
    asks = [Ask("An object: ", Constraint.json_object(),
                SamplingParams(max_new_tokens=60, temperature=1.0, seed=seed, logit_bias=close)) for seed in range(6)]
    results = run(engine, asks)
    assert {result.finish_reason for result in results} <= {"stop", "length"}
    finished = [result.text for result in results if result.finish_reason == "stop"]
    assert finished
    assert all(is_json_of('{"type": "object"}', text) for text in finished)


@each_json_target
def test_default_whitespace_is_one_form(target: Target, walkers: Walkers) -> None:
    """`compact` is `, ` and `: ` on every backend: the model has no say in blanks."""
    constraint = Constraint.json_schema(SHIP)
    walker, spell = walkers(target), walkers.tokenizer.spell
    value = {"name": "Ada", "masts": 3, "afloat": True}
    assert _accepts(walker, constraint, spell(spaced(value)))
    for other in (compact(value), spaced(value).replace(", ", ",  "), spaced(value).replace("{", "{\n ")):
        assert not _accepts(walker, constraint, spell(other)), other
    for form in (spaced(value), compact(value)):
        assert _accepts(walkers.judging(target), constraint, spell(form)), form


@each_json_target
@pytest.mark.parametrize("seed", range(3))
def test_random_walks_stop_only_at_valid_json(target: Target, seed: int, walkers: Walkers,
                                              tokenizer: Tokenizer) -> None:
    """Wherever the mask holds the end, the text so far is JSON of the schema: at every step, not only at the last."""
    rng = random.Random(seed)
    ends = 0
    for _ in range(6):
        schema = random_schema(rng)
        constraint = Constraint.json_schema(schema)
        with walkers(target).start(constraint) as walk:
            for text, allowed in random_walk(walk, tokenizer.vocabulary, rng, steps=40):
                assert allowed, f"stuck after {text!r} in {constraint.source}"
                if not allowed.isdisjoint(tokenizer.vocabulary.stop_ids):
                    ends += 1
                    assert is_json_of(constraint.source, text.decode()), (constraint.source, text)
    assert ends >= 3


@each_json_target
@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": "string", "maxLength": 6},
                                    {"type": "string", "minLength": 1, "maxLength": 6}], ids=json.dumps)
def test_a_string_is_a_json_string_whatever_its_length(target: Target, schema: Schema, walkers: Walkers) -> None:
    """Characters that JSON writes as escapes only come as escapes, and may come: with a length and without."""
    walker, spell = walkers.judging(target), walkers.tokenizer.spell
    constraint = Constraint.json_schema(schema)
    for text in ('"a"', '"\\n"', '"\\"\\\\"', '"é"'):
        assert is_json_of(constraint.source, text)
        assert _accepts(walker, constraint, spell(text)), text
    for code in (0x01, 0x09, 0x0A, 0x1F):
        assert not _accepts(walker, constraint, spell(f'"{chr(code)}"')), code


# Schemas that nothing may be dropped from, texts of theirs, and texts that are not.
TELLING: tuple[tuple[Schema, tuple[str, ...], tuple[str, ...]], ...] = (
    ({"type": "object", "properties": {"a": {"type": "integer"}}},
     ("{}", '{"a": 1}', '{"a": 1, "b": "x"}', '{"ab": "x"}'), ('{"a": "x"}', '{"\\u0061": "x"}', '{"a": 1, "a": "x"}')),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["z"],
      "additionalProperties": {"type": "integer"}}, ('{"z": 1}', '{"a": 2, "z": 1}'), ('{"a": 1}', '{"z": "x"}')),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
      "additionalProperties": False, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
     ('{"a": 1}', '{"b": "x"}', '{"a": 1, "b": ""}'), ("{}", '{"a": "x"}', '{"c": 1}')),
    ({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}, ("3", "5"), ("2", "6", '"a"')),
    ({"type": "number", "minimum": 0.1, "maximum": 0.25}, ("0.1", "0.2", "0.25", "0.123"), ("0.3", "0.05", "1")),
    ({"minimum": 3, "maxLength": 1}, ("3", '"a"', "null", "[1]"), ("2", '"ab"')),
    ({"$ref": "#deep", "$defs": {"x": {"$anchor": "deep", "enum": [1, "a"], "type": "integer"}}}, ("1",), ('"a"', "2")),
    ({"items": [{"type": "integer"}], "additionalItems": False, "type": "array", "uniqueItems": False},
     ("[]", "[1]"), ('["a"]', "[1, 1]")),
    ({"type": "object", "patternProperties": {"^x": {"type": "integer"}, "^y": {"type": "string"}},
      "additionalProperties": False}, ('{"x1": 1, "y": "b"}', "{}"), ('{"x1": "a"}', '{"z": 1}', '{"ax": 1}')),
)


@pytest.mark.parametrize("target", [target for target in TARGETS if target.supports("json_object")], ids=str)
@pytest.mark.parametrize(("schema", "inside", "outside"), TELLING, ids=lambda value: json.dumps(value)[:50])
def test_no_keyword_is_dropped_and_no_text_lost(target: Target, schema: Schema, inside: tuple[str, ...],
                                                outside: tuple[str, ...], walkers: Walkers) -> None:
    """On the libraries that hold schemas of any depth; a regex cannot hold some of these."""
    constraint = Constraint.json_schema(schema)
    walker, spell = walkers.judging(target), walkers.tokenizer.spell
    assert [text for text in inside if not _accepts(walker, constraint, spell(text))] == []
    assert [text for text in outside if _accepts(walker, constraint, spell(text))] == []


def _hold(target: Target, walkers: Walkers, schema: Schema, rng: random.Random) -> int:
    """Valid values get in, in two spellings; mutated ones that are no longer valid stay out. Texts looked at."""
    constraint = Constraint.json_schema(schema)
    walker, tokenizer = walkers.judging(target), walkers.tokenizer
    seen = 0
    for _ in range(3):
        text = compact(random_value(rng, schema))
        assert is_json_of(constraint.source, text)
        found = walkers.judge.checker(target).check(constraint, text)
        assert found.got == "accepted", (constraint.source, text, found)
        seen += 1
        for _ in range(4):
            changed = mutated(rng, text)
            if not is_json_of(constraint.source, changed):
                seen += 1
                assert not _accepts(walker, constraint, tokenizer.spell(changed)), (constraint.source, changed)
    return seen


@each_json_target
@given(schema=schemas(), seed=st.integers(0, 10**6))
@settings(max_examples=12, deadline=None, derandomize=True)
def test_valid_values_get_in_and_mutated_ones_stay_out(target: Target, walkers: Walkers, schema: Schema,
                                                       seed: int) -> None:
    assert _hold(target, walkers, schema, random.Random(seed)) > 0


@each_json_target
@pytest.mark.slow
@given(schema=schemas(depth=3), seed=st.integers(0, 10**6))
@settings(max_examples=80, deadline=None)
def test_valid_values_get_in_and_mutated_ones_stay_out_at_length(target: Target, walkers: Walkers, schema: Schema,
                                                                 seed: int) -> None:
    try:
        walkers.judging(target).start(Constraint.json_schema(schema)).close()
    except GrammarTimeoutError:
        return  # a schema too large for an automaton
    assert _hold(target, walkers, schema, random.Random(seed)) > 0
