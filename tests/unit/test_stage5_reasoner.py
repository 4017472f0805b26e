"""Reasoning before the answer: the grammar starts behind the end-of-think token, whatever backend is inside."""

from __future__ import annotations

import inspect
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_runtime.config import EngineConfig
from shared_runtime.constrain.using.reasoning import split_reasoning, think_end_id
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import ConfigError, ConstraintError, GrammarSyntaxError, RequestError
from shared_runtime.policy import AdmitState, StageOptions
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from stages.stage5_backend_jump.base_grammar_backend import REGISTRY, BaseGrammarObject
from stages.stage5_backend_jump.decoder import STAGE, GrammarManagerPolicy
from stages.stage5_backend_jump.reasoner_grammar_backend import (
    ReasonerGrammarBackend,
    ReasonerGrammarObject,
    ThinkingRows,
)
from tests.conftest import EngineFactory
from tests.tiny_models import tiny_folder
from tests.unit.stage5_helpers import (
    EOS,
    SMALL,
    THINK_END,
    A,
    B,
    ScriptedBackend,
    WordGrammar,
    allowed_in,
    batch_of,
    context_over,
    request,
)

pytestmark = pytest.mark.model

FILE_SEP = 5
YEAR = Constraint.regex("[0-9]{4}")
THINKS = StageOptions(think_end="<file_sep>")


@pytest.fixture(scope="module")
def tokenizer(embedded_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(embedded_folder)


def reasoner(word: list[int], budget: int | None = None, thinking: bool = True) -> ReasonerGrammarObject:
    made = ReasonerGrammarObject(WordGrammar(SMALL, word), ThinkingRows.of(SMALL, THINK_END)).copy()
    made.maybe_init_reasoning(thinking, budget)
    return made


def test_thinking_is_free_but_cannot_end_the_answer_and_then_the_grammar_holds() -> None:
    grammar = reasoner([A, B])
    assert allowed_in(grammar) == {1, 2, 3, 4, 5}  # no stop token, no padding id
    assert not grammar.accepting
    for token_id in (B, B, 5):
        grammar.accept_token(token_id)
    for bad in (EOS, 6, 7, 8, -1):
        with pytest.raises(ConstraintError):
            grammar.accept_token(bad)
    grammar.accept_token(THINK_END)
    assert allowed_in(grammar) == {A}
    with pytest.raises(ConstraintError):
        grammar.accept_token(THINK_END)
    for token_id in (A, B, EOS):
        grammar.accept_token(token_id)
    assert grammar.is_terminated()
    assert grammar.accepted == 7


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_a_budget_that_is_used_up_leaves_only_the_end_of_thinking(budget: int) -> None:
    grammar = reasoner([A], budget)
    for _ in range(budget):
        assert allowed_in(grammar) == {1, 2, 3, 4, 5}
        grammar.accept_token(B)
    assert allowed_in(grammar) == {THINK_END}
    with pytest.raises(ConstraintError):
        grammar.accept_token(B)
    grammar.accept_token(THINK_END)
    assert allowed_in(grammar) == {A}
    grammar.rollback(1)
    assert allowed_in(grammar) == {THINK_END}


def test_without_thinking_the_grammar_starts_at_once() -> None:
    grammar = reasoner([A], thinking=False)
    assert allowed_in(grammar) == {A}
    assert not grammar.thinking
    grammar.accept_token(A)
    grammar.rollback(1)
    with pytest.raises(ValueError, match="cannot take back"):
        grammar.rollback(1)


@settings(max_examples=200, deadline=None)
@given(thought=st.lists(st.sampled_from([1, 2, 3, 5]), max_size=4), answered=st.integers(0, 4), back=st.integers(0, 9),
       thinking=st.booleans(), budget=st.sampled_from([None, 4, 6]))
def test_taking_back_and_taking_again_changes_nothing(
        thought: list[int], answered: int, back: int, thinking: bool, budget: int | None) -> None:
    """The way back leads over the end of thinking, too (upstream until #14163: museum row 54)."""
    ids = ([*thought, THINK_END] if thinking else []) + [A, B, A, EOS][:answered]
    grammar = reasoner([A, B, A], budget, thinking)
    seen = []
    for token_id in ids:
        seen.append((allowed_in(grammar), grammar.thinking, grammar.think_tokens, grammar.answer_tokens))
        grammar.accept_token(token_id)
    if back > len(ids):
        with pytest.raises(ValueError, match="cannot take back"):
            grammar.rollback(back)
        back = 0
    grammar.rollback(back)
    for token_id, before in zip(ids[len(ids) - back:], seen[len(ids) - back:], strict=True):
        assert before == (allowed_in(grammar), grammar.thinking, grammar.think_tokens, grammar.answer_tokens)
        grammar.accept_token(token_id)
    assert grammar.accepted == len(ids)
    assert grammar.is_terminated() == (answered == 4)


def test_a_copy_knows_nothing_of_what_the_original_has_been_through() -> None:
    """Museum row 63: the same schema, first with reasoning off, then on."""
    first = reasoner([A, B], thinking=False)
    first.accept_token(A)
    second = first.copy()
    second.maybe_init_reasoning(True, 2)
    fresh = reasoner([A, B], 2)
    for token_id in (B, THINK_END, A, B, EOS):
        assert allowed_in(second) == allowed_in(fresh)
        assert (second.think_tokens, second.answer_tokens) == (fresh.think_tokens, fresh.answer_tokens)
        second.accept_token(token_id)
        fresh.accept_token(token_id)
    third = second.copy()
    third.maybe_init_reasoning(False)
    assert allowed_in(third) == {A}
    assert third.budget is None


def test_the_wrapper_forwards_the_whole_interface() -> None:
    """Museum rows 55 and 67: a method the wrapper lacked was the base class's, and knew of no inner grammar."""
    public = {name for name, value in vars(BaseGrammarObject).items()
              if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))}
    by_base_on_purpose = {"accept_token", "jump_and_retokenize"}  # made of the others
    assert public - by_base_on_purpose <= set(vars(ReasonerGrammarObject))


def test_retokenizing_works_over_the_end_of_thinking() -> None:
    grammar = reasoner([A, B, A])
    for token_id in (B, THINK_END, A):
        grammar.accept_token(token_id)
    assert grammar.jump_and_retokenize([B, THINK_END, A], [B, B, THINK_END, A, B], -1)
    assert (grammar.think_tokens, grammar.answer_tokens) == (2, 2)
    assert not grammar.jump_and_retokenize([B, B, THINK_END, A, B], [THINK_END, B], -1)
    assert (grammar.think_tokens, grammar.answer_tokens, grammar.accepted) == (2, 2, 5)
    assert grammar.try_jump_forward() is None


def test_errors_of_the_inner_backend_come_through(tokenizer: Tokenizer) -> None:
    """Museum row 50: a wrapper hid the refusal, so a bad schema was served."""
    context = context_over(SMALL, tokenizer)

    def refuse(constraint: Constraint) -> BaseGrammarObject:
        raise GrammarSyntaxError("no schema", offset=3)

    backend = ReasonerGrammarBackend(context, ScriptedBackend(context, refuse), THINK_END)
    with pytest.raises(GrammarSyntaxError, match="no schema"):
        backend.init_value(YEAR)
    backend.reset()
    assert isinstance(backend.inner, ScriptedBackend)
    assert backend.inner.resets == 1
    policy = GrammarManagerPolicy(context_over(tokenizer.vocabulary, tokenizer, options=THINKS))
    req = request("bad", Constraint.json_schema('{"type": "strnig"}'))
    answer = policy.admit(req)
    while answer.state is AdmitState.COMPILING:
        answer = next((given for _, given in policy.poll()), answer)
    assert answer.state is AdmitState.REJECTED
    assert "strnig" in str(answer.error)


@pytest.mark.parametrize("name", STAGE.capabilities.backends)
def test_it_works_around_every_backend(name: str, tokenizer: Tokenizer) -> None:
    """Museum row 67: with two of upstream's three backends every request of a reasoning server got a 400."""
    context = context_over(tokenizer.vocabulary, tokenizer)
    backend = ReasonerGrammarBackend(context, REGISTRY.create(name, context), FILE_SEP)
    compiled = backend.init_value(YEAR).grammar
    thinking, answering, off = (compiled.copy() for _ in range(3))
    thinking.maybe_init_reasoning(True)
    answering.maybe_init_reasoning(True, 1)
    off.maybe_init_reasoning(False)
    answering.accept_token(17)
    assert allowed_in(answering) == {FILE_SEP}
    answering.accept_token(FILE_SEP)
    width = tokenizer.vocabulary.width
    mask, plain = (compiled.allocate_vocab_mask(width, 4, torch.device("cpu")) for _ in range(2))
    entries: list[tuple[int, BaseGrammarObject]] = [(0, thinking), (1, answering), (3, off)]
    thinking.fill_vocab_mask_batched(entries, mask)
    for row, grammar in entries:
        grammar.fill_vocab_mask(plain, row)
    assert torch.equal(mask, plain)
    assert torch.equal(mask[1], mask[3])
    assert (mask[2] == -1).all()
    assert allowed_in(thinking) == set(range(width)) - {2}
    digits = {tokenizer.encode(str(digit))[0] for digit in range(10)}
    assert allowed_in(answering) == digits


@pytest.mark.parametrize("name", STAGE.capabilities.backends)
@pytest.mark.parametrize("budget", [0, 4])
def test_an_answer_is_reasoning_then_a_text_of_the_language(
        name: str, budget: int, make_engine: EngineFactory) -> None:
    engine = make_engine(stage="stage5_backend_jump", backend=name, options=THINKS, trace=True)
    results = engine.generate(["x", "y", "z"], constraint=[YEAR, YEAR, None], sampling=[
        SamplingParams(max_new_tokens=30, thinking_budget=budget, temperature=1.0, seed=1),
        SamplingParams(max_new_tokens=30, thinking=False), SamplingParams(max_new_tokens=6)])
    bound, off, free = results
    thought, answer = split_reasoning(bound.token_ids, FILE_SEP)
    assert len(thought) <= budget
    assert bound.token_ids.count(FILE_SEP) == 1
    assert bound.finish_reason == off.finish_reason == "stop"
    assert engine.tokenizer.decode(answer).isdigit()
    assert len(engine.tokenizer.decode(answer)) == 4
    assert off.text.isdigit()
    assert free.finish_reason == "length"


def test_a_thinking_request_is_cut_by_the_length_limit_and_survives_retraction(make_engine: EngineFactory) -> None:
    engine = make_engine(stage="stage5_backend_jump", options=THINKS, kv_pool_tokens=40, new_token_ratio=0.1)
    asked = SamplingParams(max_new_tokens=14, thinking_budget=5, ignore_eos=True)
    results = engine.generate(["a b c"] * 4, constraint=YEAR, sampling=asked)
    for result in results:
        assert result.token_ids == results[0].token_ids
        thought, answer = split_reasoning(result.token_ids, FILE_SEP)
        assert len(thought) <= 5
        assert len(engine.tokenizer.decode(answer)) == 4
        assert engine.tokenizer.decode(answer).isdigit()
    assert sum(result.metrics.retractions for result in results) > 0
    never = SamplingParams(max_new_tokens=3, logit_bias={FILE_SEP: -99})
    cut = engine.generate_one("a", constraint=YEAR, sampling=never)
    assert (cut.finish_reason, split_reasoning(cut.token_ids, FILE_SEP)) == ("length", (cut.token_ids, []))


def test_a_model_with_its_own_end_of_think_token(
        embedded_folder: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """`</think>` added to the tokenizer as one token, past the vocabulary that the embedded model has."""
    folder = tiny_folder(tmp_path / "thinker", tokenizer_from=embedded_folder, vocab_size=49_184)
    file = folder / "tokenizer.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    data["added_tokens"].append({"id": 49_152, "content": "</think>", "single_word": False, "lstrip": False,
                                 "rstrip": False, "normalized": False, "special": False})
    file.write_text(json.dumps(data), encoding="utf-8")
    engine = Engine(EngineConfig(model=str(folder), stage="stage5_backend_jump", kv_pool_tokens=512,
                                 options=StageOptions(think_end="</think>")))
    end_id = think_end_id(engine.tokenizer, "</think>")
    assert end_id == 49_152
    result = engine.generate_one("x", constraint=YEAR, sampling=SamplingParams(
        max_new_tokens=30, thinking_budget=6, temperature=3.0, seed=2))
    thought, answer = split_reasoning(result.token_ids, end_id)
    assert len(thought) <= 6
    assert max(thought, default=0) < 49_152
    assert engine.tokenizer.decode(answer).isdigit()
    assert result.finish_reason == "stop"
    engine.check_integrity()
    engine.close()


@pytest.mark.parametrize(("token", "said"), [
    ("</think>", r"3 tokens.*\[\d+, \d+, \d+\]"), ("", "0 tokens"), ("<|im_end|>", "stop token"), ("\x04", "no token"),
])
def test_an_end_of_think_that_is_no_single_token_is_refused_with_its_ids(
        token: str, said: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match=said):
        GrammarManagerPolicy(context_over(tokenizer.vocabulary, tokenizer, options=StageOptions(think_end=token)))


@pytest.mark.parametrize("value", [5, True, 10**9, ["<file_sep>"], b"<file_sep>"], ids=repr)
def test_an_end_of_think_that_is_no_text_is_refused(value: object, make_engine: EngineFactory) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"think_end: must be a token's printed name, not {value!r}")):
        make_engine(stage=5, options=StageOptions(think_end=value))  # type: ignore[arg-type]  # what a caller may give


def test_a_stop_token_that_ends_the_reasoning_part_is_refused_where_an_answer_has_to_follow(
        make_engine: EngineFactory) -> None:
    engine = make_engine(stage=5, options=THINKS)
    stops = SamplingParams(max_new_tokens=3, stop_token_ids=(5,))
    with pytest.raises(RequestError, match="stop_token_ids: token 5 ends the reasoning part"):
        engine.generate_one("x", constraint=YEAR, sampling=stops)
    for constraint, sampling in ((None, stops), (YEAR, replace(stops, thinking=False))):
        assert engine.generate_one("x", constraint=constraint, sampling=sampling).error is None


def test_stages_without_reasoning_and_requests_without_a_place_for_a_budget_say_so(make_engine: EngineFactory) -> None:
    with pytest.raises(ConfigError, match="--stage 5"):
        make_engine(stage=1, options=THINKS)
    budget = SamplingParams(max_new_tokens=4, thinking_budget=2)
    for engine, constraint in ((make_engine(stage="stage5_backend_jump"), YEAR),
                               (make_engine(stage="stage5_backend_jump", options=THINKS), None)):
        with pytest.raises(RequestError, match="thinking_budget"):
            engine.generate_one("x", constraint=constraint, sampling=budget)
    for value in (-1, 1.5, True, "3"):
        with pytest.raises(RequestError, match="thinking_budget"):
            SamplingParams(thinking_budget=value)  # type: ignore[arg-type]  # what JSON may hold


def test_reasoning_and_answer_are_split_at_the_first_end() -> None:
    assert split_reasoning([7, 8, 5, 9, 5], 5) == ([7, 8], [9, 5])
    assert split_reasoning([7, 8], 5) == ([7, 8], [])
    assert split_reasoning([5, 9], 5) == ([], [9])


def test_the_trace_shows_the_phase(tokenizer: Tokenizer) -> None:
    policy = GrammarManagerPolicy(context_over(tokenizer.vocabulary, tokenizer, options=THINKS))
    req = request("r", YEAR)
    answer = policy.admit(req)
    while answer.state is AdmitState.COMPILING:
        answer = next((given for _, given in policy.poll()), answer)
    shown = policy.describe(req)
    assert (shown["thinking"], shown["think_tokens"], shown["terminated"]) == (True, 0, False)
    assert json.dumps(shown)
    logits = torch.randn(1, tokenizer.vocabulary.width, generator=torch.Generator().manual_seed(random.randrange(9)))
    before = logits.clone()
    assert policy.constrain(logits, batch_of(req), [0]) == [0]
    changed = (logits != before).nonzero()[:, 1].tolist()
    assert changed == [2]
