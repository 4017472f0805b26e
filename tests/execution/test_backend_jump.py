"""Jump-forward given back by the backend: a draft changes no token, forced text changes nothing but the spelling."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import ConfigError, ConstraintError
from shared_runtime.policy import BackendJump as Mode
from shared_runtime.policy import Speculation, StageOptions
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from stages.stage5_backend_jump.base_grammar_backend import BaseGrammarObject
from stages.stage5_backend_jump.decoder import STAGE
from tests.conformance.harness import MIXED, Ask, cases, in_language, run
from tests.conftest import EngineFactory

BACKENDS = STAGE.capabilities.backends
MODES: tuple[Mode, ...] = ("draft", "force", "force+draft")
FORCING: tuple[Mode, ...] = ("force", "force+draft")

# Much is forced, some is free, a choice has a common beginning, and characters of several bytes stand about.
CARD = Constraint.regex(
    r'\{"name": "[A-Z][a-z]{2,5}", "temper": "(calm|cautious)", "été": [0-9]{2}, "世界": "(🌍|🌏)"\}')
PLAIN = SamplingParams(max_new_tokens=120)

each_backend = pytest.mark.parametrize("backend", BACKENDS)
each_mode = pytest.mark.parametrize("mode", MODES)
each_forcing_mode = pytest.mark.parametrize("mode", FORCING)


def _engine(make: EngineFactory, backend: str, mode: Mode, spec: Speculation = "none", **settings: Any) -> Engine:
    return make(stage=5, backend=backend, exact=True, options=StageOptions(backend_jump=mode, spec=spec), **settings)


def _same(reference: Sequence[Result], others: Sequence[Result]) -> None:
    for one, other in zip(reference, others, strict=True):
        assert (other.token_ids, other.text, other.finish_reason, other.matched) == (
            one.token_ids, one.text, one.finish_reason, one.matched)
        assert other.logprobs == one.logprobs
        assert other.warnings == one.warnings
        assert other.metrics.forward_passes <= one.metrics.forward_passes


def _books_balance(result: Result) -> None:
    """Every token came in one way, and each pass gave at least one."""
    counts = result.counts
    assert counts["forced"] + counts["sampled"] + counts["accepted"] == len(result.token_ids) == len(result.origins)
    assert counts["accepted"] <= counts["drafted"]
    assert result.metrics.forward_passes <= len(result.token_ids)
    assert result.metrics.emitted_tokens == len(result.token_ids)
    assert result.metrics.sampled_tokens <= result.metrics.forward_passes


# draft: the tokens of plain masking, in fewer passes

SAMPLING = {
    "greedy": PLAIN,
    "sampled": replace(PLAIN, temperature=1.0, top_p=0.9, seed=5),
    "penalties": replace(PLAIN, repetition_penalty=1.3, frequency_penalty=0.5, presence_penalty=0.2),
    "at its limit": replace(PLAIN, max_new_tokens=17),
    "least tokens": replace(PLAIN, min_new_tokens=70),
    "ignores eos": replace(PLAIN, ignore_eos=True),
    "stop string": replace(PLAIN, stop=("mper", "zzz")),
    "scored": replace(PLAIN, top_logprobs=2),
}


@each_backend
@pytest.mark.parametrize("name", sorted(SAMPLING))
def test_a_draft_changes_no_token_whatever_the_sampling(name: str, backend: str, make_engine: EngineFactory) -> None:
    asks = [Ask("A card: ", CARD, SAMPLING[name]), Ask("Once upon a time", None, replace(PLAIN, max_new_tokens=12)),
            Ask("Another: ", CARD, replace(SAMPLING[name], seed=9))]
    plain = run(_engine(make_engine, backend, "none"), asks)
    drafted = run(_engine(make_engine, backend, "draft"), asks)
    _same(plain, drafted)
    for result in drafted:
        _books_balance(result)
    assert drafted[1].counts["drafted"] == 0, "a free request has no forced text"
    assert drafted[0].counts["drafted"] > 0


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
@pytest.mark.parametrize("spec", ["none", "ngram"])
def test_a_draft_changes_no_token_of_the_conformance_cases(backend: str, spec: Speculation,
                                                          make_engine: EngineFactory) -> None:
    """Everything the case file holds that this backend serves, and a mixed batch, side by side."""
    kinds = STAGE.capabilities.kinds_of(backend)
    asks = [Ask(f"{case.id}: ", case.constraint, SamplingParams(max_new_tokens=24)) for case in cases()
            if case.constraint is not None and case.constraint.kind in kinds] + list(MIXED)
    plain = run(_engine(make_engine, backend, "none"), asks)
    drafted = run(_engine(make_engine, backend, "draft", spec), asks)
    for one, other in zip(plain, drafted, strict=True):
        assert (str(one.error), one.token_ids, one.finish_reason) == (
            str(other.error), other.token_ids, other.finish_reason)
        assert other.metrics.forward_passes <= one.metrics.forward_passes
    saved = sum(a.metrics.forward_passes - b.metrics.forward_passes for a, b in zip(plain, drafted, strict=True))
    assert sum(result.counts["accepted"] for result in drafted) >= saved > 0


@each_backend
def test_a_wrong_draft_costs_less_and_less(backend: str, make_engine: EngineFactory) -> None:
    """A model that would spell everything byte by byte refuses every forced token that is longer."""
    engine = _engine(make_engine, backend, "draft")
    spelled = engine.tokenizer.vocabulary.token_bytes
    single = {engine.tokenizer.vocabulary.byte_tokens[byte]: 1000.0 for byte in set(CARD.source.encode())
              if byte in engine.tokenizer.vocabulary.byte_tokens}
    text = "abcdefgh " * 12
    params = replace(PLAIN, max_new_tokens=200, logit_bias=single)
    plain, = run(_engine(make_engine, backend, "none"), [Ask("x", Constraint.choice([text]), params)])
    drafted, = run(engine, [Ask("x", Constraint.choice([text]), params)])
    _same([plain], [drafted])
    if all(len(spelled[token_id]) == 1 for token_id in plain.token_ids[:-1] if spelled[token_id]):
        refused = drafted.counts["drafted"] - drafted.counts["accepted"]
        assert refused < 64 + len(plain.token_ids) // 2, "drafts went on although none was right"


# force: canonical text, appended without being sampled

@each_backend
@each_forcing_mode
@pytest.mark.parametrize("name", sorted(SAMPLING))
def test_forced_text_is_in_the_language_and_counted(name: str, mode: Mode, backend: str,
                                                    make_engine: EngineFactory) -> None:
    params = SAMPLING[name]
    asks = [Ask("A card: ", CARD, params), Ask("Once upon a time", None, replace(PLAIN, max_new_tokens=12)),
            Ask("Another: ", CARD, replace(params, seed=9))]
    results = run(_engine(make_engine, backend, mode), asks)
    free, = run(_engine(make_engine, backend, "none"), asks[1:2])
    _same([free], results[1:2])
    for result in (results[0], results[2]):
        _books_balance(result)
        assert result.error is None
        assert result.counts["forced"] > 0
        assert result.metrics.forward_passes < len(result.token_ids)
        assert len(result.token_ids) <= params.max_new_tokens
        if name == "stop string":
            assert (result.finish_reason, result.matched) == ("stop", "mper")
            assert "mper" not in result.text
        elif result.finish_reason == "stop":
            assert re.fullmatch(CARD.source, result.text)
        else:
            assert len(result.token_ids) == params.max_new_tokens
        if params.wants_logprobs:
            assert [entry.token_id for entry in result.logprobs] == result.token_ids


@each_backend
@each_mode
def test_no_limit_is_passed_and_none_is_missed(mode: Mode, backend: str, make_engine: EngineFactory) -> None:
    """Every length, so that the limit falls in, before and behind forced text."""
    engine = _engine(make_engine, backend, mode)
    whole = run(engine, [Ask("A card: ", CARD, PLAIN)])[0]
    asks = [Ask("A card: ", CARD, replace(PLAIN, max_new_tokens=count)) for count in range(1, len(whole.token_ids))]
    for count, result in enumerate(run(engine, asks), start=1):
        assert (len(result.token_ids), result.finish_reason) == (count, "length")
        assert result.token_ids == whole.token_ids[:count]
        _books_balance(result)


@each_backend
@each_mode
def test_logprobs_are_those_of_reading_the_whole(mode: Mode, backend: str, make_engine: EngineFactory) -> None:
    engine = _engine(make_engine, backend, mode)
    for params in (replace(PLAIN, logprobs=True), replace(PLAIN, logprobs=True, stop=("mper",)),
                   replace(PLAIN, logprobs=True, max_new_tokens=9)):
        result, = run(engine, [Ask("A card: ", CARD, params)])
        assert [entry.token_id for entry in result.logprobs] == result.token_ids
        expected = _scores(make_engine(exact=True), result)
        assert [entry.logprob for entry in result.logprobs] == expected


def _scores(engine: Engine, result: Result) -> list[float]:
    """Log-probability of each token of an answer, from reading prompt and answer in one go."""
    params = SamplingParams(max_new_tokens=1, prompt_logprobs=True)
    name, = engine.add_request(prompt_ids=result.prompt_ids + result.token_ids, sampling=params)
    while engine.has_work:
        engine.step()
    scored = next(event.result for event in engine.take_events([name]) if event.result is not None)
    return [entry.logprob for entry in scored.prompt_logprobs[len(result.prompt_ids) - 1:]]


@each_backend
@each_mode
def test_pieces_of_a_stream_are_the_text(mode: Mode, backend: str, make_engine: EngineFactory) -> None:
    engine = _engine(make_engine, backend, mode)
    whole = run(engine, [Ask("A card: ", CARD, PLAIN)])[0]
    events = list(engine.stream("A card: ", sampling=PLAIN, constraint=CARD))
    assert "".join(event.text for event in events) == whole.text
    assert [token_id for event in events for token_id in event.token_ids] == whole.token_ids
    assert [origin for event in events for origin in event.origins] == whole.origins
    assert len(events) <= whole.metrics.forward_passes + 1


@each_backend
@each_mode
def test_several_answers_are_those_of_requests_of_their_own(mode: Mode, backend: str,
                                                           make_engine: EngineFactory) -> None:
    params = replace(PLAIN, temperature=1.2, seed=3)
    engine = _engine(make_engine, backend, mode)
    together = engine.generate("A card: ", sampling=replace(params, n=3), constraint=CARD)
    alone = [engine.generate_one("A card: ", sampling=replace(params, seed=3 + index), constraint=CARD)
             for index in range(3)]
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]
    assert len({one.text for one in together}) > 1


@each_backend
@each_mode
def test_short_memory_changes_nothing(mode: Mode, backend: str, make_engine: EngineFactory) -> None:
    asks = [Ask(f"Card number {index} says", CARD, replace(PLAIN, logprobs=True, temperature=0.8, seed=index))
            for index in range(5)]
    roomy = run(_engine(make_engine, backend, mode), asks)
    engine = _engine(make_engine, backend, mode, kv_pool_tokens=150, new_token_ratio=0.1, chunked_prefill_size=4)
    tight = run(engine, asks)
    for one, other in zip(roomy, tight, strict=True):
        assert (other.token_ids, other.logprobs) == (one.token_ids, one.logprobs)
        assert re.fullmatch(CARD.source, other.text)
    assert sum(result.metrics.retractions for result in tight) > 0


@each_backend
@each_mode
def test_an_abort_at_any_turn_leaves_the_others_alone(mode: Mode, backend: str, make_engine: EngineFactory) -> None:
    engine = _engine(make_engine, backend, mode)
    whole = run(engine, [Ask("A card: ", CARD, PLAIN)])[0]
    for turns in range(1, 9, 2):
        kept = engine.add_request("A card: ", sampling=PLAIN, constraint=CARD)[0]
        dropped = engine.add_request("Another: ", sampling=PLAIN, constraint=CARD)[0]
        results: dict[str, Result] = {}
        for turn in range(400):
            if turn == turns:
                engine.abort(dropped)
            engine.step()
            engine.check_integrity()
            results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
            if len(results) == 2:
                break
        assert results[dropped].finish_reason == "abort"
        assert results[kept].token_ids == whole.token_ids


@each_backend
@each_forcing_mode
def test_a_stop_token_of_the_requests_own_is_never_forced(mode: Mode, backend: str,
                                                         make_engine: EngineFactory) -> None:
    """Only the model may stop, and only where the grammar may end: forced text is cut in front of such a token."""
    engine = _engine(make_engine, backend, mode)
    text = "the quick brown fox jumps over it"
    brown = engine.tokenizer.spell(text)[2]
    params = replace(PLAIN, stop_token_ids=(brown,))
    asks = [Ask("x", Constraint.choice([text]), params)]
    result, = run(engine, asks)
    assert brown not in result.token_ids
    assert result.counts["forced"] > 0
    if backend == "llguidance":  # its mask leaves that one token there, so nothing is left: with or without jumps
        plain, = run(_engine(make_engine, backend, "none"), asks)
        assert (result.text, str(result.error)) == (plain.text, str(plain.error))
    else:
        assert (result.text, result.finish_reason) == (text, "stop")


@each_backend
@each_mode
def test_the_grammar_waits_for_the_end_of_thinking(mode: Mode, backend: str, make_engine: EngineFactory) -> None:
    """The reasoning part is as it would be; behind it the first forced text comes with the same turn's pass."""
    end, digit = 5, 39
    options = StageOptions(think_end="<file_sep>")
    constraint = Constraint.choice(["forced from its beginning to the end"])
    params = replace(PLAIN, thinking=True, thinking_budget=4, logit_bias={digit: 1000.0})
    plain = make_engine(stage=5, backend=backend, exact=True, options=options).generate_one(
        "x", sampling=params, constraint=constraint)
    engine = make_engine(stage=5, backend=backend, exact=True,
                         options=replace(options, backend_jump=mode, spec="ngram"))
    result = engine.generate_one("x", sampling=params, constraint=constraint)
    for one in (plain, result):
        assert one.token_ids[:5] == [digit] * 4 + [end]
        assert one.text.endswith(constraint.choices[0])
    if mode == "draft":
        _same([plain], [result])
    else:
        assert result.token_ids[5:-1] == engine.tokenizer.spell(constraint.choices[0])
    assert result.counts["forced"] + result.counts["accepted"] > 0


# lookup, alone and behind forced text

@each_backend
def test_a_tail_that_is_drafted_changes_no_token(backend: str, make_engine: EngineFactory) -> None:
    """`force+draft` is `force` in fewer passes."""
    asks = [Ask("A card: ", CARD, replace(PLAIN, temperature=1.0, seed=seed)) for seed in range(4)]
    asks.append(Ask("x", Constraint.regex('"(recommend|reconsider|record), (calm|cautious)"'), PLAIN))
    forced = run(_engine(make_engine, backend, "force"), asks)
    both = run(_engine(make_engine, backend, "force+draft"), asks)
    _same(forced, both)
    assert [result.counts["forced"] for result in both] == [result.counts["forced"] for result in forced]


@each_backend
@pytest.mark.parametrize("mode", ["none", *MODES])
def test_lookup_changes_no_token_in_any_mode(mode: Mode, backend: str, make_engine: EngineFactory) -> None:
    items = Constraint.regex(r'\[(\{"key": "(abc|abd)", "value": [0-9]{1,3}\}, ){6}0\]')
    asks = [Ask('{"key": "abc", "value": 12}, {"key": "abc", "value": 12}, [', items, PLAIN),
            Ask("one two three one two three one two", None, replace(PLAIN, max_new_tokens=40, ignore_eos=True)),
            Ask("A card: ", CARD, replace(PLAIN, temperature=0.7, seed=2)), *MIXED]
    without = run(_engine(make_engine, backend, mode), asks)
    engine = _engine(make_engine, backend, mode, "ngram")
    results = run(engine, asks)
    _same(without, results)
    assert sum(result.counts["accepted"] for result in results) > sum(result.counts["accepted"] for result in without)
    for result in results:
        _books_balance(result)


def test_a_mixed_batch_keeps_its_company_apart(make_engine: EngineFactory) -> None:
    """Each request gets in company what it gets alone, in every mode."""
    for mode in MODES:
        engine = _engine(make_engine, "xgrammar", mode, "ngram")
        together = run(engine, MIXED)
        alone = [run(engine, [ask])[0] for ask in MIXED]
        assert [one.token_ids for one in together] == [one.token_ids for one in alone]
        for ask, result in zip(MIXED, together, strict=True):
            assert result.finish_reason == "length" or in_language(ask.constraint, result.text)


# failures

@each_mode
def test_a_library_that_fails_over_forced_text_ends_its_own_request(mode: Mode, make_engine: EngineFactory,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    from stages.stage5_backend_jump.xgrammar_backend import XGrammarGrammar

    right = XGrammarGrammar.forced_bytes

    def failing(self: XGrammarGrammar) -> bytes:
        if self.accepted == 3 and self.vocabulary.decode(self._ids).startswith(b"["):
            raise RuntimeError("the library is out of order")
        return right(self)

    asks = [Ask("A card: ", CARD, PLAIN), Ask("x", Constraint.regex(r"\[[a-z]{9}, and this is forced\]"), PLAIN)]
    good, = run(_engine(make_engine, "xgrammar", mode), asks[:1])
    monkeypatch.setattr(XGrammarGrammar, "forced_bytes", failing)
    one, bad = run(_engine(make_engine, "xgrammar", mode), asks)
    assert one.token_ids == good.token_ids
    assert bad.finish_reason == "error"
    assert isinstance(bad.error, ConstraintError)
    assert "out of order" in str(bad.error)


def test_by_default_nobody_asks_what_is_forced(make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """As upstream, where jump-forward became unreachable."""
    def refuse(self: BaseGrammarObject) -> bytes:
        raise AssertionError("asked")

    from stages.stage5_backend_jump.llguidance_backend import LLGuidanceGrammar
    from stages.stage5_backend_jump.xgrammar_backend import XGrammarGrammar

    for one in (XGrammarGrammar, LLGuidanceGrammar):
        monkeypatch.setattr(one, "forced_bytes", refuse)
    for backend in ("xgrammar", "llguidance"):
        result = make_engine(stage=5, backend=backend).generate_one("x", sampling=PLAIN, constraint=CARD)
        assert result.counts["forced"] == result.counts["drafted"] == 0
        assert result.metrics.forward_passes == len(result.token_ids)


@pytest.mark.parametrize("stage", [1, 2, 3, 4])
def test_older_stages_name_the_one_that_can(stage: int, make_engine: EngineFactory) -> None:
    for options in (StageOptions(backend_jump="draft"), StageOptions(backend_jump="force+draft"),
                    StageOptions(spec="ngram")):
        with pytest.raises(ConfigError, match="--stage 5"):
            make_engine(stage=stage, options=options)
