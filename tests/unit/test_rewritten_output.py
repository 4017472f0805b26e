"""What the runtime owes a stage that rewrites a request's output: scores, stop strings, limits, streaming.

The stand-in stage takes a request out of the batch once and appends text to its output, as jumping stages do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.policy import Requeue
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.trace import RewriteRecord, TokenOrigin
from tests.conftest import EngineFactory

Append = Callable[[Engine, str], None]
PROMPT = "Once upon a time"


def _append_once(engine: Engine, text: str, after: int = 2) -> None:
    """Make the engine's stage append `text` to the first request that has `after` tokens."""
    done = False

    def before_decode(batch: ScheduleBatch) -> Requeue:
        nonlocal done
        req = batch.reqs[0]
        if done or len(req.output_ids) != after:
            return Requeue()
        done = True
        engine.parts.memory.release(req)
        old, new = list(req.output_ids), req.output_ids + engine.tokenizer.spell(text)
        req.output_ids = new
        req.origins = [*req.origins, *(cast(list[TokenOrigin], ["jumped"]) * (len(new) - len(old)))]
        assert req.detokenizer is not None
        req.detokenizer.rebuild(new)
        return Requeue([req], {req.rid: RewriteRecord(text, old, list(new), len(old))})

    engine.parts.policy.before_decode = before_decode  # type: ignore[method-assign]  # stands in for a stage


def _stream(engine: Engine, params: SamplingParams) -> tuple[Result, str]:
    pieces, ids = [], list[int]()
    for event in engine.stream(PROMPT, sampling=params):
        pieces.append(event.text)
        ids[event.start:] = event.token_ids
        engine.check_integrity()
    assert event.result is not None
    assert ids == event.result.token_ids
    return event.result, "".join(pieces)


def test_appended_text_is_streamed_once_and_counted_apart(make_engine: EngineFactory) -> None:
    engine = make_engine()
    _append_once(engine, " and then she said")
    result, streamed = _stream(engine, SamplingParams(max_new_tokens=12, ignore_eos=True))
    appended = len(engine.tokenizer.spell(" and then she said"))
    assert streamed == result.text
    assert " and then she said" in result.text
    assert (result.counts["sampled"], result.counts["jumped"]) == (12 - appended, appended)
    assert result.metrics.prompt_tokens == len(result.prompt_ids)


@pytest.mark.parametrize("chunk", [512, 3])
def test_appended_tokens_get_the_logprobs_of_the_model(chunk: int, make_engine: EngineFactory) -> None:
    """Equal to what the model says of the same ids as a prompt."""
    engine = make_engine(exact=True, chunked_prefill_size=chunk)
    _append_once(engine, " in the old dark house")
    params = SamplingParams(max_new_tokens=12, top_logprobs=2, ignore_eos=True)
    result, _ = _stream(engine, params)
    assert [entry.token_id for entry in result.logprobs] == result.token_ids
    scorer = make_engine(exact=True)
    name, = scorer.add_request(prompt_ids=result.prompt_ids + result.token_ids,
                               sampling=SamplingParams(max_new_tokens=1, prompt_logprobs=True, top_logprobs=2))
    while scorer.has_work:
        scorer.step()
    scored = scorer.take_events()[-1].result
    assert scored is not None
    assert scored.rid == name
    expected = scored.prompt_logprobs[len(result.prompt_ids) - 1:]
    assert [entry.logprob for entry in result.logprobs] == [entry.logprob for entry in expected]


def test_a_stop_string_inside_appended_text_ends_the_request(make_engine: EngineFactory) -> None:
    engine = make_engine()
    _append_once(engine, ' one, "age": two')
    result, streamed = _stream(engine, SamplingParams(max_new_tokens=40, stop=("age",), ignore_eos=True))
    assert (result.finish_reason, result.matched) == ("stop", "age")
    assert result.text == streamed
    assert result.text.endswith(' one, "')
    spelled = engine.tokenizer.decode(result.token_ids)
    assert "age" in spelled
    assert "two" not in spelled


def test_appended_text_stops_at_the_length_limit(make_engine: EngineFactory) -> None:
    engine = make_engine()
    _append_once(engine, " a b c d e f g h i j k l m n o p")
    result, streamed = _stream(engine, SamplingParams(max_new_tokens=7, ignore_eos=True))
    assert (len(result.token_ids), result.finish_reason) == (7, "length")
    assert streamed == result.text == engine.tokenizer.decode(result.token_ids)


def test_the_trace_shows_what_was_appended(make_engine: EngineFactory) -> None:
    engine = make_engine(trace=True)
    _append_once(engine, " hello there")
    name, = engine.add_request(PROMPT, sampling=SamplingParams(max_new_tokens=10, ignore_eos=True))
    shown = []
    while engine.has_work:
        record = engine.step()
        assert record is not None
        shown += [(part.mode, part.prefix_hit, part.jump) for part in record.requests if part.jump is not None]
    assert len(shown) == 1
    mode, prefix_hit, note = shown[0]
    assert note is not None
    assert (mode, note.text) == ("extend", " hello there")
    assert prefix_hit == len(engine.tokenizer.encode(PROMPT)) + 1, "the newest token had no keys and values yet"
    assert engine.take_events()[-1].rid == name


@pytest.mark.parametrize("params", [
    SamplingParams(max_new_tokens=7, top_logprobs=2, ignore_eos=True),
    SamplingParams(max_new_tokens=40, top_logprobs=2, ignore_eos=True, stop=("house",)),
], ids=["length", "stop string"])
@pytest.mark.parametrize("chunk", [512, 3])
def test_appended_text_that_ends_a_request_has_its_logprobs_too(
        params: SamplingParams, chunk: int, make_engine: EngineFactory) -> None:
    engine = make_engine(exact=True, chunked_prefill_size=chunk)
    _append_once(engine, " in the old dark house by the sea")
    result, streamed = _stream(engine, params)
    assert streamed == result.text
    assert [entry.token_id for entry in result.logprobs] == result.token_ids
    scorer = make_engine(exact=True)
    scorer.add_request(prompt_ids=result.prompt_ids + result.token_ids,
                       sampling=SamplingParams(max_new_tokens=1, prompt_logprobs=True, top_logprobs=2))
    while scorer.has_work:
        scorer.step()
    scored = scorer.take_events()[-1].result
    assert scored is not None
    expected = scored.prompt_logprobs[len(result.prompt_ids) - 1:]
    assert [entry.logprob for entry in result.logprobs] == [entry.logprob for entry in expected]


def test_a_stage_that_fails_before_a_decode_ends_its_requests_and_no_others(make_engine: EngineFactory) -> None:
    engine = make_engine()

    def explode(batch: ScheduleBatch) -> Requeue:
        raise KeyError("a defect")

    engine.parts.policy.before_decode = explode  # type: ignore[method-assign]  # stands in for a stage
    bad, free = engine.generate(["x", "y"], sampling=SamplingParams(max_new_tokens=6, ignore_eos=True),
                                constraint=[Constraint.regex("[0-9]{9}"), None])
    assert (bad.finish_reason, free.finish_reason) == ("error", "length")
    assert "KeyError" in str(bad.error)
    engine.check_integrity()
