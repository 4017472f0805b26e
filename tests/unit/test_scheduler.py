"""The loop on the tiny model: chunks, retraction, requeueing, queue order, limits, stop conditions, metrics."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import ConfigError, EngineStateError, RequestError
from shared_runtime.policy import AcceptResult, Requeue, SampledRow
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from tests.conftest import EngineFactory

LONG = "The quick brown fox jumps over the lazy dog, then it sleeps under the old tree by the river. " * 3
GREEDY = SamplingParams(max_new_tokens=10, top_logprobs=2)


def _drain(engine: Engine) -> dict[str, Result]:
    results: dict[str, Result] = {}
    while engine.has_work:
        engine.step()
        engine.check_integrity()
        results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    return results


def test_a_prompt_in_chunks_gives_the_tokens_of_one_in_one_piece(make_engine: EngineFactory) -> None:
    whole = make_engine(exact=True).generate_one(LONG, sampling=GREEDY)
    for size in (1, 7, 64):
        engine = make_engine(exact=True, chunked_prefill_size=size)
        chunked = engine.generate_one(LONG, sampling=GREEDY)
        assert chunked.token_ids == whole.token_ids
        assert chunked.logprobs == whole.logprobs
        passes = -(-len(whole.prompt_ids) // size) + 9
        assert chunked.metrics.forward_passes == passes


def test_a_middle_chunk_advances_no_grammar(make_engine: EngineFactory) -> None:
    """Museum row 30: the sample of a middle chunk means nothing and must not be accepted."""
    engine = make_engine(chunked_prefill_size=4)
    accepted: list[int] = []
    original = engine.parts.policy.accept

    def counting(batch: ScheduleBatch, rows: Sequence[SampledRow]) -> list[AcceptResult]:
        accepted.extend(len(row.token_ids) for row in rows)
        return original(batch, rows)

    engine.parts.policy.accept = counting  # type: ignore[method-assign]  # a counter around the real thing
    result = engine.generate_one(LONG, sampling=GREEDY, constraint=Constraint.regex("[a-z ]{30}"))
    assert sum(accepted) == len(result.token_ids)


def test_memory_pressure_retracts_and_loses_nothing(make_engine: EngineFactory) -> None:
    """Retraction keeps the output and the grammar's state: row 6 restarted an answer in its middle."""
    params = SamplingParams(max_new_tokens=24, top_logprobs=2)
    prompts = [f"Request number {index} says" for index in range(6)]
    constraint = Constraint.regex("([a-z]{2} )+[0-9]{200}")
    plenty = make_engine(exact=True).generate(prompts, sampling=params, constraint=constraint)
    engine = make_engine(exact=True, kv_pool_tokens=70, new_token_ratio=0.1)
    names = [engine.add_request(prompt, sampling=params, constraint=constraint)[0] for prompt in prompts]
    results = _drain(engine)
    assert sum(result.metrics.retractions for result in results.values()) >= 2
    for reference, name in zip(plenty, names, strict=True):
        assert results[name].token_ids == reference.token_ids
        assert results[name].logprobs == reference.logprobs


def test_the_newest_is_retracted_first(make_engine: EngineFactory) -> None:
    engine = make_engine(kv_pool_tokens=70, new_token_ratio=0.1, trace=True)
    params = SamplingParams(max_new_tokens=24, ignore_eos=True)
    names = [engine.add_request(f"Number {index}", sampling=params)[0] for index in range(6)]
    first_victim = None
    while engine.has_work and first_victim is None:
        record = engine.step()
        assert record is not None
        if record.retracted:
            first_victim = record.retracted[0]
            alive = [*record.running, *record.retracted]
    assert first_victim == max(alive, key=names.index)
    _drain(engine)


@pytest.mark.parametrize("every", [1, 3])
def test_a_request_taken_out_of_the_batch_comes_back_on_its_own_prefix(
        every: int, make_engine: EngineFactory) -> None:
    """Step 3 of the loop: whatever a stage takes out and hands back ends with the same tokens."""
    reference = make_engine(exact=True).generate(["One two three", "Four five"], sampling=GREEDY)
    engine = make_engine(exact=True, trace=True)
    turns = 0

    def take_out(batch: ScheduleBatch) -> Requeue:
        nonlocal turns
        turns += 1
        if turns % every:
            return Requeue()
        victim = batch.reqs[turns // every % len(batch.reqs)]
        engine.parts.memory.release(victim)
        return Requeue([victim])

    engine.parts.policy.before_decode = take_out  # type: ignore[method-assign]  # stands in for a stage
    names = [engine.add_request(prompt, sampling=GREEDY)[0] for prompt in ("One two three", "Four five")]
    results: dict[str, Result] = {}
    hits = 0
    while engine.has_work:
        record = engine.step()
        engine.check_integrity()
        assert record is not None
        hits += sum(1 for part in record.requests if part.mode == "extend" and part.prefix_hit == part.kv_len - 1)
        results |= {event.rid: event.result for event in engine.take_events() if event.result is not None}
    assert hits >= 3
    for name, other in zip(names, reference, strict=True):
        assert results[name].token_ids == other.token_ids
        assert results[name].logprobs == other.logprobs


def test_a_shared_prompt_is_computed_once(make_engine: EngineFactory) -> None:
    engine = make_engine()
    first = engine.generate_one(LONG, sampling=GREEDY)
    second = engine.generate_one(LONG, sampling=GREEDY)
    assert (first.metrics.cached_tokens, second.metrics.cached_tokens) == (0, len(first.prompt_ids) - 1)
    assert second.token_ids == first.token_ids


def test_lpm_serves_the_longest_cached_prefix_first(make_engine: EngineFactory) -> None:
    order = {}
    for policy in ("fcfs", "lpm"):
        engine = make_engine(schedule_policy=policy, max_running_requests=1)
        engine.generate_one(LONG, sampling=SamplingParams(max_new_tokens=1))
        cold = engine.add_request("Something else", sampling=SamplingParams(max_new_tokens=2))[0]
        warm = engine.add_request(LONG, sampling=SamplingParams(max_new_tokens=2))[0]
        order[policy] = [{cold: "cold", warm: "warm"}[name] for name in _drain(engine)]
    assert order == {"fcfs": ["cold", "warm"], "lpm": ["warm", "cold"]}


def test_at_most_max_running_requests_run(make_engine: EngineFactory) -> None:
    engine = make_engine(max_running_requests=2, trace=True)
    for index in range(5):
        engine.add_request(f"Number {index}", sampling=GREEDY)
    widest = 0
    while engine.has_work:
        record = engine.step()
        assert record is not None
        widest = max(widest, len(record.running))
        engine.take_events()
    assert widest == 2


def test_n_answers_use_seed_plus_i(make_engine: EngineFactory) -> None:
    engine = make_engine()
    params = SamplingParams(max_new_tokens=8, temperature=1.0, seed=40, n=3)
    together = engine.generate("A story", sampling=params)
    alone = [engine.generate_one("A story", sampling=SamplingParams(max_new_tokens=8, temperature=1.0, seed=40 + i))
             for i in range(3)]
    assert [result.index for result in together] == [0, 1, 2]
    assert [result.token_ids for result in together] == [result.token_ids for result in alone]
    assert len({tuple(result.token_ids) for result in together}) == 3


def test_requests_without_a_seed_differ_and_an_engine_repeats_itself(make_engine: EngineFactory) -> None:
    params = SamplingParams(max_new_tokens=8, temperature=1.0)
    runs = [[result.token_ids for result in make_engine(seed=5).generate(["x", "x"], sampling=params)]
            for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


def test_stop_string_across_tokens_is_cut_off_and_never_streamed(make_engine: EngineFactory) -> None:
    engine = make_engine()
    constraint = Constraint.regex("alpha, beta; gamma, delta")
    params = SamplingParams(max_new_tokens=60, stop=("; gam", "zzz"))
    pieces = []
    for event in engine.stream("Say: ", sampling=params, constraint=constraint):
        pieces.append(event.text)
        if event.result is not None:
            result = event.result
    assert result.text == "alpha, beta" == "".join(pieces)
    assert (result.finish_reason, result.matched) == ("stop", "; gam")


def test_stop_token_ids_end_a_request(make_engine: EngineFactory) -> None:
    engine = make_engine()
    free = engine.generate_one("x", sampling=SamplingParams(max_new_tokens=6))
    stop = free.token_ids[2]
    cut = engine.generate_one("x", sampling=SamplingParams(max_new_tokens=6, stop_token_ids=(stop,)))
    first = free.token_ids.index(stop)
    assert cut.token_ids == free.token_ids[:first + 1]
    assert (cut.finish_reason, cut.matched) == ("stop", stop)
    assert engine.tokenizer.decode(free.token_ids[:first]).startswith(cut.text)


def test_max_new_tokens_is_exact_and_reported(make_engine: EngineFactory) -> None:
    for limit in (1, 2, 7):
        result = make_engine().generate_one("x", sampling=SamplingParams(max_new_tokens=limit, ignore_eos=True))
        assert (len(result.token_ids), result.finish_reason) == (limit, "length")


def test_a_terminated_grammar_ends_the_request_in_spite_of_ignore_eos(make_engine: EngineFactory) -> None:
    result = make_engine().generate_one("x", sampling=SamplingParams(max_new_tokens=30, ignore_eos=True),
                                        constraint=Constraint.choice(["yes", "no"]))
    assert result.text in ("yes", "no")
    assert result.finish_reason == "stop"


def test_eos_wins_over_min_new_tokens_when_nothing_else_is_left(make_engine: EngineFactory) -> None:
    result = make_engine().generate_one("x", sampling=SamplingParams(max_new_tokens=30, min_new_tokens=20),
                                        constraint=Constraint.choice(["yes", "no"]))
    assert result.text in ("yes", "no")
    assert result.finish_reason == "stop"
    assert len(result.warnings) == 1


def test_prompt_logprobs_cover_the_prompt_whatever_is_cached_or_cut(make_engine: EngineFactory) -> None:
    params = SamplingParams(max_new_tokens=2, prompt_logprobs=True, top_logprobs=2)
    reference = make_engine(exact=True).generate_one(LONG, sampling=params)
    ids = reference.prompt_ids
    assert [entry.token_id for entry in reference.prompt_logprobs] == ids[1:]
    engine = make_engine(exact=True, chunked_prefill_size=9)
    engine.generate_one(LONG, sampling=GREEDY)
    again = engine.generate_one(LONG, sampling=params)
    assert again.prompt_logprobs == reference.prompt_logprobs
    assert again.logprobs == reference.logprobs


def test_masked_logprobs_are_renormalised_over_what_is_allowed(make_engine: EngineFactory) -> None:
    params = SamplingParams(max_new_tokens=6, logprobs=True)
    engine = make_engine()
    bound = engine.generate_one("x", sampling=params, constraint=Constraint.regex("[0-9]{4}"))
    assert all(entry.masked_logprob > entry.logprob for entry in bound.logprobs)
    assert len(bound.logprobs) == len(bound.token_ids)
    free = engine.generate_one("x", sampling=params)
    assert all(entry.masked_logprob == entry.logprob for entry in free.logprobs)


def test_metrics_count_what_happened(make_engine: EngineFactory) -> None:
    result = make_engine().generate_one("A few words", sampling=SamplingParams(max_new_tokens=5, ignore_eos=True))
    metrics = result.metrics
    assert metrics.prompt_tokens == len(result.prompt_ids)
    assert (metrics.emitted_tokens, metrics.sampled_tokens, metrics.forward_passes) == (5, 5, 5)
    assert result.counts["sampled"] == 5
    for seconds in (metrics.queue_s, metrics.prefill_s, metrics.ttft_s, metrics.tpot_s):
        assert seconds is not None
        assert seconds > 0


@pytest.mark.parametrize(("arguments", "where"), [
    ({"prompt": ""}, "prompt"),
    ({}, "prompt"),
    ({"prompt": "x", "prompt_ids": [1]}, "prompt"),
    ({"prompt_ids": [49152]}, "prompt_ids"),
    ({"prompt_ids": [-1]}, "prompt_ids"),
    ({"messages": []}, "messages"),
    ({"prompt": "x", "sampling": SamplingParams(max_new_tokens=65)}, "max_new_tokens"),
    ({"prompt": "word " * 9000}, "prompt"),
    ({"prompt": "a\x04b"}, "offset 1 of the text"),
    ({"prompt": "x", "sampling": SamplingParams(stop_token_ids=(99_999,))}, "stop_token_ids"),
    ({"prompt": "x", "rid": "taken", "sampling": GREEDY}, "rid"),
])
def test_what_cannot_be_served_is_refused_at_once(
        arguments: dict[str, object], where: str, make_engine: EngineFactory) -> None:
    engine = make_engine(kv_pool_tokens=64)
    engine.add_request("first", rid="taken", sampling=GREEDY)
    with pytest.raises(RequestError) as caught:
        engine.add_request(**arguments)  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.where == where
    assert _drain(engine)["taken"].finish_reason == "length"


def test_a_refused_prompt_in_a_list_leaves_the_others_alone(make_engine: EngineFactory) -> None:
    results = make_engine().generate(["", "fine"], sampling=GREEDY)
    assert [result.finish_reason for result in results] == ["error", "length"]
    assert isinstance(results[0].error, RequestError)


def test_closing_a_stream_aborts_its_request(make_engine: EngineFactory) -> None:
    engine = make_engine()
    stream = engine.stream("x", sampling=SamplingParams(max_new_tokens=200, ignore_eos=True))
    next(stream)
    stream.close()
    assert not engine.has_work
    assert engine.generate_one("y", sampling=GREEDY).finish_reason == "length"


def test_a_closed_engine_says_so(make_engine: EngineFactory) -> None:
    engine = make_engine()
    engine.close()
    with pytest.raises(EngineStateError):
        engine.add_request("x")


def test_aborting_an_unknown_request_says_so(make_engine: EngineFactory) -> None:
    with pytest.raises(EngineStateError):
        make_engine().abort("nobody")


def test_the_kv_pool_holds_a_request_that_fills_it_exactly(make_engine: EngineFactory) -> None:
    engine = make_engine(kv_pool_tokens=64)
    prompt = engine.tokenizer.encode("one two three four")
    params = SamplingParams(max_new_tokens=64 - len(prompt), ignore_eos=True)
    names = [engine.add_request(prompt_ids=prompt, sampling=params)[0] for _ in range(3)]
    results = _drain(engine)
    assert [len(results[name].token_ids) for name in names] == [64 - len(prompt)] * 3
    with pytest.raises(RequestError):
        engine.add_request(prompt_ids=[*prompt, 17], sampling=params)


@pytest.mark.parametrize("settings", [
    {"dtype": "fp8"}, {"device": "tpu"}, {"kv_pool_tokens": 0}, {"threads": 0}, {"schedule_policy": "random"},
    {"new_token_ratio": 0.0}, {"stage": 9}, {"stage": 1, "backend": "nothing"},
])
def test_a_setting_that_cannot_work_is_named(settings: dict[str, object], make_engine: EngineFactory) -> None:
    with pytest.raises(ConfigError) as caught:
        make_engine(**settings)
    assert caught.value.where in {*settings, "stage", "backend"}


def test_an_answer_longer_than_the_context_is_cut_with_a_warning(make_engine: EngineFactory) -> None:
    engine = make_engine()
    context = engine.parts.model.context_length
    params = SamplingParams(max_new_tokens=8, ignore_eos=True)
    name, = engine.add_request(prompt_ids=[17] * (context - 3), sampling=params)
    result = _drain(engine)[name]
    assert (len(result.token_ids), result.finish_reason) == (3, "length")
    assert "lowered from 8 to 3" in result.warnings[0]
