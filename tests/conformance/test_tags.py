"""Structural tags: free text is free until a trigger, and behind it only what was announced may come."""

from __future__ import annotations

import json
import random

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from tests.conformance.harness import Ask, Target, Walkers, each_target_with, in_language, run
from tests.conformance.walks import CLOSING, lead
from tests.conftest import EngineFactory
from tests.oracles.random_schema import mutated

POINT = {"type": "object", "properties": {"x": {"type": "integer"}, "on": {"type": "boolean"}},
         "required": ["x", "on"], "additionalProperties": False}
TAG = Constraint.structural_tag({
    "structures": [{"begin": "<f=point>", "schema": POINT, "end": "</f>"},
                   {"begin": "<f=word>", "schema": {"enum": ["tea", "天气"]}, "end": "</f>"}],
    "triggers": ["<f="]})

each_tag_target = each_target_with("structural_tag")

INSIDE = ("", "free <f text", '<f=point>{"x": 1, "on": true}</f>', 'so <f=word>"天气"</f>, <f=word>"tea"</f>.',
          "a < b, <|im_end|> and </f>", "日本語 😀")
OUTSIDE = ("<f=", "<f=line>", '<f=point>{"x": 1}</f>', '<f=point>{"x": 1, "on": true}', '<f=word>"salt"</f>',
           '<f=word>"tea"</g>', "ok <f=word>tea</f>", '<f=word>"tea"</f><f=x')


@each_tag_target
@pytest.mark.parametrize(("text", "accepted"), [*((one, True) for one in INSIDE), *((one, False) for one in OUTSIDE)])
def test_text_and_tags(target: Target, text: str, accepted: bool, walkers: Walkers) -> None:
    assert in_language(TAG, text) is accepted
    found = walkers.judge.checker(target).check(TAG, text)
    assert (found.got == "accepted") is accepted, found


@each_tag_target
def test_walks_through_tags_stop_only_where_the_recogniser_says_so(
        target: Target, walkers: Walkers, tokenizer: Tokenizer) -> None:
    """Each walk is led up to a trigger, and is then free to wander."""
    rng, ends = random.Random(4), 0
    vocabulary = tokenizer.vocabulary
    for begin in ("so <f=", "<f=p", "<f=w", "a") * 2:
        with walkers.judging(target).start(TAG) as walk:
            lead(walk, vocabulary, begin)
            text = begin.encode()
            for _ in range(14):
                allowed = set() if walk.terminated else walk.allowed()
                if not allowed.isdisjoint(vocabulary.stop_ids):
                    ends += 1
                    assert in_language(TAG, text.decode("utf-8", "replace")), text
                choices = sorted(allowed - vocabulary.stop_ids)
                if not choices:
                    break
                liked = [i for i in choices if CLOSING.issuperset(vocabulary.token_bytes[i])]
                token_id = rng.choice(liked if liked and rng.random() < 0.6 else choices)
                assert walk.feed(token_id) is None
                text += vocabulary.token_bytes[token_id]
    assert ends >= 10


@each_tag_target
def test_mutated_tags_stay_out(target: Target, walkers: Walkers, tokenizer: Tokenizer) -> None:
    rng, refused = random.Random(11), 0
    for text in [text for text in INSIDE if "<f=" in text] * 8:
        changed = mutated(rng, text)
        if not in_language(TAG, changed):
            refused += 1
            with walkers.judging(target).start(TAG) as walk:
                ids = tokenizer.spell(changed)
                fed = walk.feed_allowed(ids) == len(ids)
                assert not (fed and (walk.terminated or walk.accepting)), changed
    assert refused >= 3


@each_tag_target
def test_an_answer_that_calls_a_function_is_whole(target: Target, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    liked = {engine.tokenizer.spell(text)[0]: 1e4 for text in ("<", "f", "=")}
    liked |= dict.fromkeys(engine.tokenizer.vocabulary.stop_ids, 1e4 - 220)
    asks = [Ask("x", TAG, SamplingParams(max_new_tokens=60, temperature=50.0, seed=seed, logit_bias=liked))
            for seed in range(12)]
    results = run(engine, asks)
    assert any("<f=" in result.text for result in results)
    for result in results:
        assert result.finish_reason in ("stop", "length"), result.error
        if result.finish_reason == "stop":
            assert in_language(TAG, result.text), result.text


BAD_TAGS: tuple[object, ...] = (
    {"structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<b"]},
    {"structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": []},
    {"structures": [{"begin": "<ab>", "schema": {}, "end": "</a>"}], "triggers": ["<a", "<ab"]},
    {"structures": [{"begin": "<a>", "schema": {"type": "strnig"}, "end": "</a>"}], "triggers": ["<a"]},
    {"structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<a", "<b"]},
    {"structures": [{"begin": "<a>", "schema": False, "end": "</a>"}], "triggers": ["<a"]},
    {"structures": "no", "triggers": ["<a"]}, [], "text", {"type": "structural_tag"},
)


@each_tag_target
@pytest.mark.parametrize("bad", BAD_TAGS, ids=range(len(BAD_TAGS)))
def test_a_bad_tag_is_refused_at_admission(target: Target, bad: object, walkers: Walkers) -> None:
    with pytest.raises(ConstraintError):
        walkers(target).start(Constraint.structural_tag(json.dumps(bad)))
