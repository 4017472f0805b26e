"""Drafts and forced tokens in the loop: a draft changes how many passes are needed and never a token.

The stand-in stage proposes from a list of expected tokens, right ones and wrong ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import EngineStateError
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.policy import NO_PROPOSAL, Proposal
from shared_runtime.request import Request
from shared_runtime.result import Result
from shared_runtime.sampler import SampleOutput
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import BatchRow, ScheduleBatch
from shared_runtime.verification import verify
from tests.conftest import EngineFactory

PROMPTS = ("Once upon a time", "The list: one, two,", "世界")
Propose = Callable[[Request, int], Proposal]

SETTINGS = {
    "greedy": SamplingParams(max_new_tokens=24, top_logprobs=2),
    "sampled": SamplingParams(max_new_tokens=24, temperature=1.0, top_p=0.9, seed=5, logprobs=True),
    "penalties": SamplingParams(max_new_tokens=24, repetition_penalty=1.3, frequency_penalty=0.5, logprobs=True),
    "ends": SamplingParams(max_new_tokens=24, min_new_tokens=6, stop=("e",), logprobs=True),
    "ignores eos": SamplingParams(max_new_tokens=24, ignore_eos=True, temperature=0.7, seed=1),
}


def _install(engine: Engine, propose: Propose) -> None:
    engine.parts.policy.propose = propose  # type: ignore[method-assign, assignment]  # stands in for a stage


def _drafts_from(answers: dict[tuple[int, ...], list[int]], wrong: float, seed: int) -> Propose:
    """Offer what plain decoding wrote, with some tokens exchanged."""
    rng = random.Random(seed)

    def propose(req: Request, room: int) -> Proposal:
        expected = answers[tuple(req.prompt_ids)][len(req.output_ids):]
        draft = [token if rng.random() > wrong else rng.randrange(17, 49_152) for token in expected]
        return Proposal(draft=tuple(draft[:min(room, rng.randint(0, 6))]), source="test")

    return propose


def _drain(engine: Engine) -> dict[str, Result]:
    results: dict[str, Result] = {}
    while engine.has_work:
        engine.step()
        engine.check_integrity()
        results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    return results


@pytest.mark.parametrize("name", sorted(SETTINGS))
@pytest.mark.parametrize("wrong", [0.0, 0.3, 1.0])
def test_a_draft_never_changes_a_token(name: str, wrong: float, make_engine: EngineFactory) -> None:
    params = SETTINGS[name]
    plain = make_engine(exact=True).generate(list(PROMPTS), sampling=params)
    engine = make_engine(exact=True)
    _install(engine, _drafts_from({tuple(r.prompt_ids): r.token_ids for r in plain}, wrong, seed=3))
    drafted = engine.generate(list(PROMPTS), sampling=params)
    for reference, result in zip(plain, drafted, strict=True):
        assert (result.token_ids, result.text, result.finish_reason, result.matched) == (
            reference.token_ids, reference.text, reference.finish_reason, reference.matched)
        assert result.logprobs == reference.logprobs
        assert result.metrics.forward_passes <= reference.metrics.forward_passes
        assert result.counts["accepted"] <= result.counts["drafted"]
        assert result.counts["accepted"] + result.counts["sampled"] == len(result.token_ids)
    saved = sum(a.metrics.forward_passes - b.metrics.forward_passes for a, b in zip(plain, drafted, strict=True))
    assert saved == sum(result.counts["accepted"] for result in drafted) - sum(
        result.origins[-1] == "draft_accepted" for result in drafted)
    if wrong == 0.0:
        assert saved > 10


@pytest.mark.parametrize(("own", "common", "tokens"), [((), (), (10, 11, 12, 13)), ((11,), (), (10, 11)),
                                                       ((), (11,), (10, 11)), ((12,), (), (10, 11, 12))])
def test_a_run_ends_with_a_stop_token_though_the_draft_goes_on_rightly(
        own: tuple[int, ...], common: tuple[int, ...], tokens: tuple[int, ...]) -> None:
    """What stands behind it is never shown to a grammar, which would refuse the stop token in front of it."""
    req = Request("r", [5], "p", SamplingParams(stop_token_ids=own), seed=0)
    row = BatchRow(req, start=0, ids=[5, 10, 11, 12], slots=torch.empty(0, dtype=torch.int64), draft=3, samples=True)
    run, = verify(ScheduleBatch(ForwardMode.DECODE, [row]), SampleOutput([10, 11, 12, 13]), frozenset(common))
    assert run.token_ids == tokens
    assert run.matched == min(3, len(tokens))
    assert run.spelled == tuple(token_id for token_id in tokens if token_id not in own)


def test_drafts_hold_under_retraction_and_small_pools(make_engine: EngineFactory) -> None:
    params = SamplingParams(max_new_tokens=24, ignore_eos=True, logprobs=True)
    prompts = [f"Request number {index} says" for index in range(6)]
    plain = make_engine(exact=True).generate(prompts, sampling=params)
    engine = make_engine(exact=True, kv_pool_tokens=70, new_token_ratio=0.1)
    _install(engine, _drafts_from({tuple(r.prompt_ids): r.token_ids for r in plain}, 0.2, seed=1))
    names = [engine.add_request(prompt, sampling=params)[0] for prompt in prompts]
    results = _drain(engine)
    assert [results[name].token_ids for name in names] == [result.token_ids for result in plain]
    assert [results[name].logprobs for name in names] == [result.logprobs for result in plain]
    assert sum(result.metrics.retractions for result in results.values()) > 0


def test_forced_tokens_are_appended_without_being_sampled(make_engine: EngineFactory) -> None:
    engine = make_engine(exact=True, trace=True)
    forced = tuple(engine.tokenizer.spell(" and so on"))

    def propose(req: Request, room: int) -> Proposal:
        return Proposal(forced=forced, source="test") if len(req.output_ids) == 2 else NO_PROPOSAL

    _install(engine, propose)
    params = SamplingParams(max_new_tokens=10, top_logprobs=2, ignore_eos=True)
    name, = engine.add_request(PROMPTS[0], sampling=params)
    records = []
    while engine.has_work:
        records.append(engine.step())
        engine.check_integrity()
    result = engine.take_events()[-1].result
    assert result is not None
    assert result.rid == name
    assert result.token_ids[2:2 + len(forced)] == list(forced)
    assert result.counts["forced"] == len(forced)
    assert result.metrics.forward_passes == 10 - len(forced)
    assert [entry.token_id for entry in result.logprobs] == result.token_ids
    scorer = make_engine(exact=True)
    scorer.add_request(prompt_ids=result.prompt_ids + result.token_ids,
                       sampling=SamplingParams(max_new_tokens=1, prompt_logprobs=True, top_logprobs=2))
    scored = next(iter(_drain(scorer).values()))
    expected = scored.prompt_logprobs[len(result.prompt_ids) - 1:]
    assert [entry.logprob for entry in result.logprobs] == [entry.logprob for entry in expected]
    shown = [part for record in records if record is not None for part in record.requests if len(part.tokens) > 1]
    assert [token.origin for token in shown[0].tokens] == ["forced"] * len(forced) + ["sampled"]


@pytest.mark.parametrize(("params", "reason"), [
    (SamplingParams(max_new_tokens=40, stop=("so",), ignore_eos=True), "stop"),
    (SamplingParams(max_new_tokens=5, ignore_eos=True), "length"),
])
def test_forced_tokens_may_end_a_request(params: SamplingParams, reason: str, make_engine: EngineFactory) -> None:
    engine = make_engine()
    forced = tuple(engine.tokenizer.spell(" and so on and on"))

    def propose(req: Request, room: int) -> Proposal:
        return Proposal(forced=forced[:room]) if len(req.output_ids) == 2 else NO_PROPOSAL

    _install(engine, propose)
    names = [engine.add_request(prompt, sampling=params)[0] for prompt in PROMPTS]
    results = _drain(engine)
    for name in names:
        assert results[name].finish_reason == reason
        assert len(results[name].token_ids) <= params.max_new_tokens
        assert "so" not in results[name].text or reason == "length"


def test_a_draft_and_forced_tokens_go_together(make_engine: EngineFactory) -> None:
    engine = make_engine(exact=True)
    forced = tuple(engine.tokenizer.spell(" and so on"))

    def forcing(req: Request, room: int) -> Proposal:
        return Proposal(forced=forced) if len(req.output_ids) == 2 else NO_PROPOSAL

    params = SamplingParams(max_new_tokens=16, ignore_eos=True, logprobs=True)
    _install(engine, forcing)
    plain = engine.generate(PROMPTS[0], sampling=params)[0]

    def both(req: Request, room: int) -> Proposal:
        if len(req.output_ids) != 2:
            return NO_PROPOSAL
        return Proposal(forced=forced, draft=tuple(plain.token_ids[2 + len(forced):6 + len(forced)]))

    other = make_engine(exact=True)
    _install(other, both)
    result = other.generate(PROMPTS[0], sampling=params)[0]
    assert (result.token_ids, result.logprobs) == (plain.token_ids, plain.logprobs)
    assert result.metrics.forward_passes == plain.metrics.forward_passes - 4


def test_a_run_stops_at_a_stop_token(make_engine: EngineFactory) -> None:
    plain = make_engine(exact=True).generate_one(PROMPTS[0], sampling=SamplingParams(max_new_tokens=8))
    stop = plain.token_ids[3]
    params = SamplingParams(max_new_tokens=8, stop_token_ids=(stop,))
    engine = make_engine(exact=True)
    _install(engine, lambda req, room: Proposal(draft=tuple(plain.token_ids[len(req.output_ids):][:room])))
    result = engine.generate_one(PROMPTS[0], sampling=params)
    assert result.token_ids == plain.token_ids[:plain.token_ids.index(stop) + 1]
    assert (result.finish_reason, result.matched) == ("stop", stop)


def test_free_and_constrained_rows_with_and_without_drafts_share_a_batch(make_engine: EngineFactory) -> None:
    params = SamplingParams(max_new_tokens=12, ignore_eos=True)
    bounds = [None, Constraint.regex("[a-z ]{60}"), None]
    plain = make_engine(exact=True).generate(list(PROMPTS), sampling=params, constraint=bounds)
    engine = make_engine(exact=True)
    answers = {tuple(result.prompt_ids): result.token_ids for result in plain}

    def only_free(req: Request, room: int) -> Proposal:
        if req.has_grammar:
            return NO_PROPOSAL
        return Proposal(draft=tuple(answers[tuple(req.prompt_ids)][len(req.output_ids):][:min(room, 3)]))

    _install(engine, only_free)
    mixed = engine.generate(list(PROMPTS), sampling=params, constraint=bounds)
    assert [result.token_ids for result in mixed] == [result.token_ids for result in plain]
    assert mixed[0].metrics.forward_passes < plain[0].metrics.forward_passes
    assert mixed[1].metrics.forward_passes == plain[1].metrics.forward_passes


@pytest.mark.parametrize("strange", [-1, 49_152, 1 << 40])
def test_a_draft_is_cut_at_an_id_that_is_no_token(strange: int, make_engine: EngineFactory) -> None:
    params = SamplingParams(max_new_tokens=6, ignore_eos=True)
    plain = make_engine(exact=True).generate_one(PROMPTS[0], sampling=params)
    engine = make_engine(exact=True)
    _install(engine, lambda req, room: Proposal(draft=(plain.token_ids[len(req.output_ids)], strange)[:room]))
    result = engine.generate_one(PROMPTS[0], sampling=params)
    assert result.token_ids == plain.token_ids
    assert result.counts["drafted"] == result.counts["accepted"] == 3


def test_a_stage_that_proposes_too_much_is_told(make_engine: EngineFactory) -> None:
    engine = make_engine()
    _install(engine, lambda req, room: Proposal(draft=(17,) * (room + 1)))
    with pytest.raises(EngineStateError):
        engine.generate_one("x", sampling=SamplingParams(max_new_tokens=4, ignore_eos=True))
    assert not engine.has_work
