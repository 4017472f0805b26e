"""The behaviour cases of `cases.jsonl`, written out by hand and named after their ids.

Where a case uses a constraint kind that a stage's generation lacks, the stage must refuse it, and the same thing is
asked of it with a regex.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from shared_runtime.constrain.using.walk import GrammarWalker
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, UnsupportedConstraintError
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary
from tests.conformance.harness import Ask, Target, Walkers, each_target, in_language, policy_of, run
from tests.conftest import EngineFactory


def _json_or_its_regex(target: Target, walkers: Walkers, schema: dict[str, object], regex: str) -> Constraint:
    """The case's schema where the stage has schemas; elsewhere the refusal is checked, and the regex stands in."""
    schema_constraint = Constraint("json_schema", source=json.dumps(schema))
    if target.supports("json_schema"):
        return schema_constraint
    with pytest.raises(UnsupportedConstraintError):
        walkers(target).start(schema_constraint)
    return Constraint.regex(regex)


@each_target
def test_hand_045_a_free_neighbour_is_not_masked(target: Target, make_engine: EngineFactory) -> None:
    free = Ask("Once there was", sampling=SamplingParams(max_new_tokens=8, logprobs=True))
    bound = Ask("The year ", Constraint.regex("[0-9]{4}"), SamplingParams(max_new_tokens=8, logprobs=True))
    engine = make_engine(stage=target.spec.id, backend=target.backend, exact=True)
    free_alone, bound_alone = (run(engine, [ask])[0] for ask in (free, bound))
    for order in ([free, bound], [bound, free], [free, bound, free, bound]):
        for ask, result in zip(order, run(engine, order), strict=True):
            alone = free_alone if ask is free else bound_alone
            assert (result.token_ids, result.text, result.logprobs) == (alone.token_ids, alone.text, alone.logprobs)
    assert in_language(bound.constraint, bound_alone.text)
    assert all(entry.masked_logprob == entry.logprob for entry in free_alone.logprobs)


@each_target
def test_hand_046_n_samples_have_their_own_state(target: Target, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    constraint = Constraint.regex("(red|green|blue), done")
    results = engine.generate("A colour: ", sampling=SamplingParams(max_new_tokens=20, temperature=4.0, seed=3, n=4),
                              constraint=constraint)
    assert len(results) == 4
    assert all(result.finish_reason == "stop" and in_language(constraint, result.text) for result in results)
    assert len({result.text for result in results}) > 1


@each_target
def test_hand_047_a_cached_grammar_starts_from_the_beginning(target: Target, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    constraint = Constraint.regex("alpha-[0-9]{3}-omega")
    cut = engine.generate_one("x", sampling=SamplingParams(max_new_tokens=3), constraint=constraint)
    assert cut.finish_reason == "length"
    name, = engine.add_request("x", sampling=SamplingParams(max_new_tokens=30), constraint=constraint)
    for _ in range(3):
        engine.step()
    engine.abort(name)
    engine.step()
    engine.take_events()
    third = engine.generate_one("x", sampling=SamplingParams(max_new_tokens=40), constraint=constraint)
    assert third.finish_reason == "stop"
    assert in_language(constraint, third.text)


@each_target
def test_hand_048_the_stop_token_is_the_models_own(
        target: Target, make_engine: EngineFactory, walkers: Walkers, tokenizer: Tokenizer) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    constraint = Constraint.regex("(yes|no)")
    result = engine.generate_one("x", sampling=SamplingParams(max_new_tokens=32), constraint=constraint)
    assert (result.finish_reason, result.matched) == ("stop", 2)
    with walkers(target).start(constraint) as walk:
        assert walk.allowed().isdisjoint(range(17))
        walk.feed_allowed(tokenizer.encode("yes"))
        assert walk.allowed() == {2}
    newline = tokenizer.encode("\n")[0]
    extra = engine.generate_one("x", sampling=SamplingParams(max_new_tokens=32, stop_token_ids=(newline,),
                                                             logit_bias={newline: 1e4}), constraint=constraint)
    assert extra.text in ("yes", "no")
    assert extra.matched == newline
    endless = engine.generate_one("x", sampling=SamplingParams(max_new_tokens=32, ignore_eos=True),
                                  constraint=constraint)
    assert (endless.text in ("yes", "no"), endless.finish_reason) == (True, "stop")


@each_target
def test_hand_049_control_tokens_are_never_text(target: Target, walkers: Walkers, tokenizer: Tokenizer) -> None:
    schema = {"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"],
              "additionalProperties": False}
    in_string = _json_or_its_regex(target, walkers, schema, r'\{"s": "[^"\\]*"\}')
    for constraint, text in ((in_string, '{"s": "abc"}'), (Constraint.regex(".{1,30}"), "abc def")):
        with walkers(target).start(constraint) as walk:
            for token_id in tokenizer.encode(text):
                allowed = walk.allowed()
                assert allowed.isdisjoint(set(range(17)) - {2})
                assert (2 in allowed) == walk.accepting
                assert walk.feed(token_id) is None
    name = Constraint.regex(r"<\|im_start\|>")
    with walkers(target).start(name) as walk:
        spelled = tokenizer.encode("<|im_start|>", parse_control=False)
        assert len(spelled) > 1
        assert walk.feed_allowed(spelled) == len(spelled)
        assert walk.accepting


@each_target
def test_hand_050_padding_ids_are_masked(
        target: Target, tokenizer: Tokenizer, padded_model: Path, make_engine: EngineFactory) -> None:
    known = tokenizer.vocabulary
    padded = Vocabulary(known.token_bytes, known.control_ids, known.stop_ids, width=49_280)
    walker = GrammarWalker(policy_of(target, tokenizer, padded), padded)
    with walker.start(Constraint.regex("[a-z]+")) as walk:
        mask = walk.mask()
        assert mask.shape == (49_280,)
        assert not mask[49_152:].any()
        assert mask[:49_152].any()
    engine = make_engine(stage=target.spec.id, backend=target.backend, model=str(padded_model))
    assert engine.tokenizer.vocabulary.width == 49_280
    for constraint in (None, Constraint.regex("[a-z]+")):
        result = engine.generate_one("x", constraint=constraint, sampling=SamplingParams(
            max_new_tokens=6, temperature=5.0, seed=1))
        assert max(result.token_ids) < 49_152


@each_target
def test_hand_054_cut_output_is_a_prefix_and_says_length(
        target: Target, walkers: Walkers, make_engine: EngineFactory) -> None:
    schema = {"type": "object", "properties": {"d": {"type": "string"}}, "required": ["d"],
              "additionalProperties": False}
    constraint = _json_or_its_regex(target, walkers, schema, r'\{"d": "[a-z ]{20,40}"\}')
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    result = engine.generate_one("x", sampling=SamplingParams(max_new_tokens=5), constraint=constraint)
    assert result.finish_reason == "length"
    assert len(result.token_ids) == 5
    with walkers(target).start(constraint) as walk:
        assert walk.feed_allowed(result.token_ids) == 5
        assert walk.allowed()


BAD = {
    "regex": "(", "json_schema": '{"type": "strnig"}', "ebnf": "root ::= undefined_rule",
    "structural_tag": '{"structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<b"]}',
}


@each_target
@pytest.mark.parametrize("kind", sorted(BAD))
def test_hand_055_a_bad_grammar_fails_closed(target: Target, kind: str, make_engine: EngineFactory) -> None:
    bad = Constraint(kind, source=BAD[kind])  # type: ignore[arg-type]  # the keys are constraint kinds
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    errors = []
    for _ in range(2):
        with pytest.raises(ConstraintError) as caught:
            engine.generate_one("x", sampling=SamplingParams(max_new_tokens=8), constraint=bad)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    good = engine.generate_one("x", sampling=SamplingParams(max_new_tokens=8), constraint=Constraint.regex("[0-9]{2}"))
    assert good.finish_reason == "stop"


@each_target
def test_hand_060_refusal_leaves_the_mask(target: Target, walkers: Walkers, tokenizer: Tokenizer) -> None:
    with walkers(target).start(Constraint.regex(r'\{"k": "[a-z]{3,9}"\}')) as walk:
        for token_id in tokenizer.encode('{"k": "ab')[:3]:
            assert walk.feed(token_id) is None
        before = walk.mask()
        tried = 0
        for text in ('"}', "7", "<|im_end|>", "\n", "Q"):
            bad = tokenizer.encode(text)[0]
            if not before[bad]:
                tried += 1
                assert walk.feed(bad) is not None
                assert torch.equal(walk.mask(), before)
        assert tried >= 3
