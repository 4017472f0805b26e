"""The behaviour cases about schemas, written out by hand and named after their ids."""

from __future__ import annotations

import json

import pytest

from shared_runtime.constrain.using.walk import GrammarWalker
from shared_runtime.constraint import Constraint
from shared_runtime.policy import StageOptions, Whitespace
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from tests.conformance.harness import Target, each_target_with, policy_of
from tests.conftest import EngineFactory

each_json_target = each_target_with("json_schema")

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def _accepts(walker: GrammarWalker, schema: str, ids: list[int]) -> bool:
    with walker.start(Constraint.json_schema(schema)) as walk:
        return walk.feed_allowed(ids) == len(ids) and (walk.terminated or walk.accepting)


@each_json_target
def test_hand_058_the_cache_tells_the_order_of_properties_apart(target: Target, tokenizer: Tokenizer) -> None:
    """Description and blanks may share an entry or not: the answer is the same. The order of properties decides it."""
    properties = {"a": {"type": "integer"}, "b": {"type": "boolean"}}
    schema = {"type": "object", "properties": properties, "required": ["a", "b"], "additionalProperties": False}
    described = {**schema, "description": "another one"}
    turned = {**schema, "properties": {"b": properties["b"], "a": properties["a"]}}
    walker = GrammarWalker(policy_of(target, tokenizer), tokenizer.vocabulary)
    first, second = (tokenizer.encode(text) for text in ('{"a": 1, "b": true}', '{"b": true, "a": 1}'))
    for _ in range(2):
        for same in (json.dumps(schema), json.dumps(described), json.dumps(schema, indent=3)):
            assert _accepts(walker, same, first)
        assert _accepts(walker, json.dumps(turned), second)
        assert not _accepts(walker, json.dumps(turned), first)
        assert not _accepts(walker, json.dumps(schema), second)


@each_json_target
def test_hand_063_compact_leaves_no_choice_of_blanks(target: Target, tokenizer: Tokenizer) -> None:
    forms = ['{"n":1}', '{ "n": 1 }', '{\n  "n": 1\n}']
    for whitespace in ("compact", "any"):
        policy = policy_of(target, tokenizer, options=StageOptions(whitespace=whitespace))
        walker = GrammarWalker(policy, tokenizer.vocabulary)
        assert _accepts(walker, json.dumps(NUMBER), tokenizer.encode('{"n": 1}'))
        for form in forms:
            assert _accepts(walker, json.dumps(NUMBER), tokenizer.encode(form)) == (whitespace == "any"), form


@each_json_target
@pytest.mark.parametrize("whitespace", ["compact", "any"])
def test_hand_063_a_model_that_likes_blanks_comes_to_an_end(target: Target, whitespace: Whitespace,
                                                            make_engine: EngineFactory) -> None:
    """Under `compact` within 20 tokens. Under `any` a library may let it go on; what is finished is right."""
    engine = make_engine(stage=target.spec.id, backend=target.backend,
                         options=StageOptions(whitespace=whitespace))
    vocabulary = engine.tokenizer.vocabulary
    bias = {i: 1e4 for i, spelled in enumerate(vocabulary.token_bytes) if spelled and not spelled.strip()}
    bias |= {i: 1e3 for i, spelled in enumerate(vocabulary.token_bytes) if spelled.strip() == b"}"}
    bias |= dict.fromkeys(vocabulary.stop_ids, 1e2)
    result = engine.generate_one("x", constraint=Constraint.json_schema(NUMBER), sampling=SamplingParams(
        max_new_tokens=200, logit_bias=bias))
    if whitespace == "compact":
        assert result.finish_reason == "stop"
        assert len(result.token_ids) < 20
        assert result.text == f'{{"n": {json.loads(result.text)["n"]}}}'
    elif result.finish_reason == "stop":
        assert result.text.count(" ") + result.text.count("\n") > 1
        assert set(json.loads(result.text)) == {"n"}
    else:
        assert result.finish_reason == "length"
