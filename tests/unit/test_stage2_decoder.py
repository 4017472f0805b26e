"""Jumps in a running engine: the answer is right, and so is everything that is counted, scored, sent and kept."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import ConstraintError, EngineStateError, UnsupportedConstraintError
from shared_runtime.policy import AdmitState, SampledRow, StageContext, StageOptions
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.trace import TokenOrigin
from stages.stage2_jump_forward.decoder import JumpForwardPolicy, RequestState
from tests.conformance.harness import Ask, in_language
from tests.conftest import EngineFactory
from tests.unit.stage1_helpers import EOS, batch_of, request, vocabulary_of
from tests.unit.stage2_helpers import KEYS, check_request, jumping_ask, live_requests, run_checked, steer

pytestmark = pytest.mark.model
PROMPT = "Describe a person:\n"


@pytest.fixture(scope="module")
def tokenizer(embedded_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(embedded_folder)


# ---------------------------------------------------------------- the answer


def test_forced_text_is_written_and_the_rest_sampled(make_engine: EngineFactory) -> None:
    engine = make_engine(stage=2, trace=True)
    ask = jumping_ask(PROMPT, KEYS)
    (result,), jumps = run_checked(engine, [ask])
    assert result.finish_reason == "stop"
    assert in_language(ask.constraint, result.text)
    notes = next(iter(jumps.values()))
    texts = [note.text for note in notes]
    assert '", "age": ' in texts
    assert texts[0].endswith('name": "'), "the beginning too, behind the first sampled token"
    assert all(note.new_ids[:note.common_prefix] == note.old_ids[:note.common_prefix] for note in notes)
    assert result.metrics.forward_passes < len(result.token_ids)
    plain = make_engine(stage=2, options=StageOptions(jump_forward=False)).generate_one(
        PROMPT, constraint=ask.constraint, sampling=ask.sampling)
    assert plain.counts["jumped"] == 0
    assert plain.metrics.forward_passes == len(plain.token_ids) > result.metrics.forward_passes


@pytest.mark.parametrize("pattern", [KEYS, "(red|green|blue), done", "[0-9]{4}", r"[a-z]+(-[a-z]+)*", "(yes|no)"])
def test_without_jumps_the_tokens_are_those_of_stage_1(pattern: str, make_engine: EngineFactory) -> None:
    outcomes = [make_engine(stage=stage, exact=True, options=StageOptions(jump_forward=False)).generate_one(
        PROMPT, constraint=Constraint.regex(pattern), sampling=SamplingParams(max_new_tokens=40)).token_ids
        for stage in (1, 2)]
    assert outcomes[0] == outcomes[1]


def test_after_a_jump_the_ids_are_those_of_the_whole_text(make_engine: EngineFactory) -> None:
    engine = make_engine(stage=2, trace=True)
    for seed in range(4):
        (result,), jumps = run_checked(engine, [jumping_ask(PROMPT, KEYS, temperature=2.0, seed=seed)])
        notes = next(iter(jumps.values()))
        assert len(notes) >= 3
        for note in notes:
            text = engine.tokenizer.decode(note.new_ids)
            assert result.text.startswith(text)
            assert result.prompt_ids + note.new_ids == engine.tokenizer.encode(PROMPT + text)


def test_half_a_character_is_completed_before_the_text_behind_it(make_engine: EngineFactory,
                                                                 tokenizer: Tokenizer) -> None:
    """Museum row 16: upstream appended the text behind the half character."""
    engine = make_engine(stage=2, trace=True)
    sampling = steer(tokenizer, b"\xe9", b"\xe6", b"\xa0")
    ask = Ask(PROMPT, Constraint.choice(["霍格沃茨", "霍比特人"]), sampling)
    (result,), jumps = run_checked(engine, [ask])
    assert [note.text for note in next(iter(jumps.values()))] == ["霍", "格沃茨"]
    assert result.text == "霍格沃茨"


@pytest.mark.parametrize(("minimum", "expected"), [
    (1, ["b", ", cd"]), (2, [", cd"]), (4, [", cd"]), (5, []), (100, [])])
def test_shorter_texts_than_the_threshold_are_sampled(minimum: int, expected: list[str], make_engine: EngineFactory,
                                                      tokenizer: Tokenizer) -> None:
    engine = make_engine(stage=2, trace=True, options=StageOptions(min_jump_bytes=minimum))
    ask = Ask(PROMPT, Constraint.regex("ab[xy], cd"), steer(tokenizer, "a", "x"))
    (result,), jumps = run_checked(engine, [ask])
    assert [note.text for note in next(iter(jumps.values()))] == expected
    assert result.text == "abx, cd"


def test_an_optional_tail_is_not_forced(make_engine: EngineFactory, tokenizer: Tokenizer) -> None:
    """Museum row 13."""
    engine = make_engine(stage=2, trace=True)
    ask = Ask(PROMPT, Constraint.regex("abx(cde)?"), steer(tokenizer, "a"))
    ask = replace(ask, sampling=replace(ask.sampling, logit_bias={**ask.sampling.logit_bias, 2: 1e4}))
    (result,), jumps = run_checked(engine, [ask])
    assert [note.text for note in next(iter(jumps.values()))] == ["bx"]
    assert (result.text, result.finish_reason) == ("abx", "stop")


def test_a_control_tokens_name_is_jumped_as_text(make_engine: EngineFactory) -> None:
    engine = make_engine(stage=2, trace=True)
    pattern = r"(say|tell): <\|im_end\|><\|im_start\|> [a-c]"
    (result,), jumps = run_checked(engine, [jumping_ask(PROMPT, pattern)])
    assert any("<|im_end|><|im_start|>" in note.text for note in next(iter(jumps.values())))
    assert set(result.token_ids[:-1]).isdisjoint(engine.tokenizer.vocabulary.control_ids)
    assert re.fullmatch(pattern, result.text)


# ---------------------------------------------------------------- counts, scores, limits, stops, streams


def test_counts_are_right_across_jumps(make_engine: EngineFactory) -> None:
    """Museum rows 9 and 10: upstream's prompt grew, its completion shrank, and one counter held both."""
    engine = make_engine(stage=2, trace=True)
    (result,), jumps = run_checked(engine, [jumping_ask(PROMPT, KEYS)])
    metrics, notes = result.metrics, next(iter(jumps.values()))
    assert metrics.prompt_tokens == len(result.prompt_ids) == len(engine.tokenizer.encode(PROMPT))
    assert metrics.emitted_tokens == len(result.token_ids)
    assert metrics.sampled_tokens == metrics.forward_passes
    assert metrics.reencoded_tokens == sum(len(note.old_ids) - note.common_prefix for note in notes)
    counts = result.counts
    assert counts["sampled"] + counts["jumped"] == len(result.token_ids)
    assert counts["jumped"] > 0
    assert counts["sampled"] <= metrics.sampled_tokens, "a token that was sampled may end inside a jumped one"


def test_a_token_is_jumped_if_a_jump_wrote_any_of_its_bytes(make_engine: EngineFactory, tokenizer: Tokenizer) -> None:
    engine = make_engine(stage=2, trace=True)
    single = [bytes([byte]) for byte in b"schone"]
    ask = Ask(PROMPT, Constraint.choice(["schooner", "sloop"]), steer(tokenizer, *single))
    (result,), jumps = run_checked(engine, [ask])
    note, = next(iter(jumps.values()))
    assert (note.old_ids, note.text) == ([tokenizer.spell("s")[0], tokenizer.spell("c")[0]], "hooner")
    spelled = [tokenizer.decode([token_id]) for token_id in result.token_ids[:-1]]
    expected: list[TokenOrigin] = []
    at = 0
    for piece in spelled:
        kept = note.common_prefix > len(expected)
        at += len(piece)
        expected.append("sampled" if kept or at <= len("sc") else "jumped")
    assert result.origins == [*expected, "sampled"]
    assert result.metrics.reencoded_tokens == len(note.old_ids) - note.common_prefix > 0


@pytest.mark.parametrize("chunk", [512, 3])
def test_jumped_tokens_get_the_logprobs_of_the_model(chunk: int, make_engine: EngineFactory) -> None:
    """Equal to what the model says of the same ids as a prompt, for every token of the answer."""
    engine = make_engine(stage=2, exact=True, trace=True, chunked_prefill_size=chunk)
    (result,), jumps = run_checked(engine, [jumping_ask(PROMPT, KEYS, top_logprobs=2)])
    assert any(note.common_prefix < len(note.old_ids) for note in next(iter(jumps.values()))), "some were re-encoded"
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


def test_never_more_than_max_new_tokens(make_engine: EngineFactory) -> None:
    """Museum row 7. A jump past the limit is cut there: all that fits is answered, and nothing sampled is lost."""
    engine = make_engine(stage=2, trace=True)
    (whole,), _ = run_checked(engine, [jumping_ask(PROMPT, KEYS)])
    cut_in_a_jump = 0
    for limit in range(1, len(whole.token_ids)):
        (result,), _ = run_checked(engine, [jumping_ask(PROMPT, KEYS, max_new_tokens=limit)])
        assert (result.finish_reason, len(result.token_ids)) == ("length", limit)
        assert whole.text.startswith(result.text)
        cut_in_a_jump += result.origins[-1] == "jumped"
    assert cut_in_a_jump >= 5


def test_a_cut_never_takes_back_what_was_sampled(make_engine: EngineFactory, tokenizer: Tokenizer) -> None:
    """Two sampled tokens that are seven when encoded again: a cut jump would end before text that has been sent."""
    assert len(tokenizer.spell("deepprivileged")) == 7
    engine = make_engine(stage=2, trace=True)
    constraint = Constraint.regex("(deep|calm)(privileged|ordinary)!, the end")
    for limit in range(3, 14):
        sampling = steer(tokenizer, "deep", "privileged", max_new_tokens=limit)
        (result,), jumps = run_checked(engine, [Ask(PROMPT, constraint, sampling)])
        assert len(result.token_ids) <= limit
        assert result.text.startswith("deepprivileged!"[:14 + (limit > 7)])
        assert result.counts["jumped"] > 0 or limit <= 7
        streamed = "".join(event.text for event in engine.stream(PROMPT, sampling=sampling, constraint=constraint))
        assert streamed == result.text
    assert next(iter(jumps.values()))[-1].common_prefix == 0


@pytest.mark.parametrize(("stop", "ending"), [('age', '", "'), (', "ag', '"'), ('": "', '{"name'), ('e": ', '{"nam')])
def test_a_stop_string_in_or_across_a_jump_ends_the_answer(stop: str, ending: str, make_engine: EngineFactory) -> None:
    """Museum row 8."""
    engine = make_engine(stage=2, trace=True)
    (result,), jumps = run_checked(engine, [jumping_ask(PROMPT, KEYS, stop=(stop,))])
    assert next(iter(jumps.values())) == [] or result.counts["jumped"] > 0
    assert (result.finish_reason, result.matched) == ("stop", stop)
    assert result.text.endswith(ending)
    assert stop not in result.text
    spelled = engine.tokenizer.decode(result.token_ids)
    assert stop in spelled
    assert [warning for warning in result.warnings if "stop string" in warning], "as without a jump"
    assert stop not in engine.tokenizer.decode(result.token_ids[:-1]), "nothing is kept behind the token that stops"


def test_an_extra_stop_token_is_never_jumped_over(make_engine: EngineFactory, tokenizer: Tokenizer) -> None:
    """It may end the text where the grammar accepts; in forced text it would be an id that ends and does not."""
    house, = tokenizer.spell(" house")
    engine = make_engine(stage=2, trace=True)
    for stops, jumped in (((), True), ((house,), False)):
        (result,), jumps = run_checked(engine, [jumping_ask(PROMPT, "[ab] house", stop_token_ids=stops)])
        assert bool(next(iter(jumps.values()))) == jumped == (house in result.token_ids[:-1])
        assert re.fullmatch("[ab] house", result.text)


@pytest.mark.parametrize("pattern", [KEYS, "(霍格沃茨|霍比特人)(é|è)(一二三|四五六)", "[a-c]{1,3}; the end; [x-z]"])
def test_what_is_streamed_is_the_text_once(pattern: str, make_engine: EngineFactory) -> None:
    """Museum row 21: upstream's detokenizer kept offsets of the old ids; pieces came twice or never."""
    engine = make_engine(stage=2)
    for seed in range(3):
        pieces, jumped = [], 0
        for event in engine.stream(PROMPT, constraint=Constraint.regex(pattern),
                                   sampling=SamplingParams(max_new_tokens=60, temperature=1.0, seed=seed)):
            engine.check_integrity()
            pieces.append(event.text)
            if event.result is not None:
                result, jumped = event.result, event.result.counts["jumped"]
            assert "\ufffd" not in event.text
        assert "".join(pieces) == result.text
        assert jumped > 0
        assert re.fullmatch(pattern, result.text)


# ---------------------------------------------------------------- company and memory


def test_n_answers_jump_each_on_its_own(make_engine: EngineFactory) -> None:
    engine = make_engine(stage=2, trace=True)
    results, jumps = run_checked(engine, [jumping_ask(PROMPT, KEYS, n=4, temperature=3.0, seed=5)])
    assert len(results) == 4
    assert all(len(notes) >= 3 for notes in jumps.values())
    assert all(re.fullmatch(KEYS, result.text) for result in results)
    assert len({result.text for result in results}) == 4
    for index, result in enumerate(results):
        alone, = engine.generate(PROMPT, constraint=Constraint.regex(KEYS),
                                 sampling=SamplingParams(max_new_tokens=60, temperature=3.0, seed=5 + index))
        assert alone.text == result.text


def test_all_that_run_may_jump_in_the_same_turn(make_engine: EngineFactory) -> None:
    """Museum row 22: upstream's "batch is full" stayed set, and the jumped requests were never admitted."""
    engine = make_engine(stage=2, trace=True, max_running_requests=2)
    for index in range(6):
        engine.add_request(f"{index}:\n", constraint=Constraint.regex("(a|b)cdef, [xy]ghi"),
                           sampling=SamplingParams(max_new_tokens=20))
    together = idle = turns = 0
    while engine.has_work and turns < 200:
        record = engine.step()
        engine.check_integrity()
        assert record is not None
        turns += 1
        together += len(record.requeued) == 2
        idle += record.mode == "idle"
    assert not engine.has_work
    assert together >= 1
    assert idle == 0, "something waits and there is room: every turn must get on"
    assert all(event.result is None or event.result.finish_reason == "stop" for event in engine.take_events())


def test_retraction_under_pressure_keeps_every_answer(make_engine: EngineFactory) -> None:
    """Museum row 6: upstream put the state back to the start and kept the jumped text."""
    pattern = "(ab|cd), first: [0-9]{20}, second: [0-9]{4}, end"
    asks = [jumping_ask(f"Person {index}:\n", pattern, max_new_tokens=50) for index in range(6)]
    solo = make_engine(stage=2)
    alone = [run_checked(solo, [ask])[0][0] for ask in asks]
    engine = make_engine(stage=2, trace=True, kv_pool_tokens=64, new_token_ratio=0.1)
    together, jumps = run_checked(engine, asks)
    assert sum(result.metrics.retractions > 0 and len(jumps[result.rid]) == 3 for result in together) >= 2
    assert [result.text for result in together] == [result.text for result in alone]
    assert all(re.fullmatch(pattern, result.text) for result in together)


@pytest.mark.parametrize("turn", range(1, 6))
def test_retraction_at_every_turn(turn: int, make_engine: EngineFactory) -> None:
    """What stood there stays, the state with it, and the answer is completed behind it."""
    engine = make_engine(stage=2)
    engine.add_request(PROMPT, sampling=SamplingParams(max_new_tokens=60), constraint=Constraint.regex(KEYS))
    for _ in range(turn):
        engine.step()
    req, = engine.scheduler.queues.running
    engine.scheduler._builder.retract(req)
    check_request(engine, req)
    before = engine.tokenizer.decode(req.output_ids)
    while engine.has_work:
        engine.step()
        engine.check_integrity()
        for live in live_requests(engine):
            check_request(engine, live)
    result = engine.take_events()[-1].result
    assert result is not None
    assert re.fullmatch(KEYS, result.text)
    assert result.text.startswith(before)
    assert result.metrics.retractions == 1


@pytest.mark.parametrize("turns", range(6))
def test_abort_at_every_turn(turns: int, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=2)
    name, = engine.add_request(PROMPT, sampling=SamplingParams(max_new_tokens=60), constraint=Constraint.regex(KEYS))
    for _ in range(turns):
        engine.step()
    engine.abort(name)
    engine.abort(name)
    while engine.has_work:
        engine.step()
        engine.check_integrity()
    result = engine.take_events()[-1].result
    assert result is not None
    assert result.finish_reason == "abort"
    assert result.text == engine.tokenizer.decode(result.token_ids)
    assert engine.scheduler.queues.empty


def test_a_jump_hits_its_own_prefix(make_engine: EngineFactory) -> None:
    engine = make_engine(stage=2, trace=True)
    engine.add_request(PROMPT, sampling=SamplingParams(max_new_tokens=60), constraint=Constraint.regex(KEYS))
    hits = []
    while engine.has_work:
        record = engine.step()
        assert record is not None
        for part in record.requests:
            if part.jump is not None:
                computed = len(engine.tokenizer.encode(PROMPT)) + len(part.jump.old_ids) - 1
                hits.append((part.mode, part.prefix_hit,
                             min(computed, len(engine.tokenizer.encode(PROMPT)) + part.jump.common_prefix)))
    assert len(hits) >= 3
    assert all(mode == "extend" and hit == reusable for mode, hit, reusable in hits)


# ---------------------------------------------------------------- refused jumps


def _about_to_decode(engine: Engine, prompt: str, pattern: str, sampling: SamplingParams) -> Request:
    engine.add_request(prompt, sampling=sampling, constraint=Constraint.regex(pattern))
    engine.step()
    req, = engine.scheduler.queues.running
    return req


def _everything(req: Request) -> object:
    grammar = req.grammar
    assert isinstance(grammar, RequestState)
    assert req.detokenizer is not None
    return copy.deepcopy((
        req.output_ids, req.origins, req.logprobs, req.prompt_ids, req.unsent, req.table_row, req.kv_len,
        req.prefix_len, req.metrics, req.detokenizer.text, req.detokenizer.matched_stop, grammar.state,
        grammar.accepted, grammar.terminated)), id(req.last_node), id(req.output_ids)


@pytest.mark.parametrize(("prompt", "pattern", "first", "why"), [
    ("a ", "bcd(x|y)|zz", "b", "prompt and answer grow together"),
    ("a ", "é(mn|op)", b"\xc3", "the same, half a character out: upstream's output grew by the other half"),
    (PROMPT, "b\xe9[xy]|b\xe8[xy]", "b", "what is forced ends inside a character, and nothing is left of it"),
])
def test_a_refused_jump_changes_nothing(prompt: str, pattern: str, first: str | bytes, why: str,
                                        make_engine: EngineFactory, tokenizer: Tokenizer) -> None:
    """Museum row 18: upstream's backup was the list itself."""
    engine = make_engine(stage=2, options=StageOptions(min_jump_bytes=1))
    req = _about_to_decode(engine, prompt, pattern, steer(tokenizer, first, top_logprobs=2))
    grammar = req.grammar
    assert isinstance(grammar, RequestState)
    assert grammar.jumps.forced(grammar.state), why
    before, usage = _everything(req), engine.parts.memory.usage()
    for _ in range(3):
        requeue = engine.parts.policy.before_decode(ScheduleBatch.about_to_decode([req]))
        assert (requeue.reqs, requeue.notes) == ([], {})
    assert _everything(req) == before
    assert engine.parts.memory.usage() == usage
    while engine.has_work:
        engine.step()
        engine.check_integrity()
    result = engine.take_events()[-1].result
    assert result is not None
    assert re.fullmatch(pattern, result.text)


def test_a_free_neighbour_stays_in_the_batch(make_engine: EngineFactory) -> None:
    engine = make_engine(stage=2, exact=True)
    free = Ask("Once upon a time", sampling=SamplingParams(max_new_tokens=20, ignore_eos=True, logprobs=True))
    (alone,), _ = run_checked(engine, [free])
    (neighbour, bound), _ = run_checked(engine, [free, jumping_ask(PROMPT, KEYS)])
    assert bound.counts["jumped"] > 0
    assert (neighbour.token_ids, neighbour.logprobs) == (alone.token_ids, alone.logprobs)
    assert neighbour.counts["jumped"] == neighbour.metrics.reencoded_tokens == 0


# ---------------------------------------------------------------- the policy by itself


@pytest.fixture
def policy(tokenizer: Tokenizer) -> JumpForwardPolicy:
    return JumpForwardPolicy(StageContext(vocabulary_of(b"a", b"b", b"ab"), tokenizer, torch.device("cpu")))


def test_outside_an_engine_nothing_jumps(policy: JumpForwardPolicy) -> None:
    req = request(Constraint.regex("abab"))
    assert policy.admit(req).state is AdmitState.READY
    assert policy.describe(req) == {"state": 0, "accepting": False, "allowed_tokens": 2, "terminated": False,
                                    "forced": "abab"}
    assert policy.before_decode(batch_of(req)).reqs == []
    result, = policy.accept(batch_of(req), [SampledRow(req, (3, 3, EOS))])
    assert (result.n_accepted, result.terminated) == (3, True)
    with pytest.raises(EngineStateError):
        policy.constrain(torch.zeros(1, 7), batch_of(req), [3])


def test_the_caches_count_one_compile_a_pattern(policy: JumpForwardPolicy) -> None:
    for pattern in ("(ab)+", "ab", "(ab)+", "(ab)+"):
        assert policy.admit(request(Constraint.regex(pattern))).state is AdmitState.READY
    for cache in (policy.fsm_cache, policy.jump_cache):
        assert (cache.hits, cache.misses, cache.hit_rate) == (2, 2, 0.5)
    assert policy.fsm_cache.vocabulary.builds == 1


def test_refusals_are_clear_and_remembered(policy: JumpForwardPolicy) -> None:
    errors = [policy.admit(request(Constraint.regex("(ab"))).error for _ in range(2)]
    assert all(isinstance(error, ConstraintError) for error in errors)
    assert str(errors[0]) == str(errors[1])
    later = policy.admit(request(Constraint("json_schema", "{}"))).error
    assert isinstance(later, UnsupportedConstraintError)
    assert later.first_stage == 3
    with pytest.raises(EngineStateError, match="without a grammar"):
        policy.before_decode(ScheduleBatch.about_to_decode([request(Constraint.regex("ab"))]))


def test_the_disk_cache_serves_the_next_engine(tmp_path: Path, make_engine: EngineFactory) -> None:
    texts, loads = [], []
    for _ in range(3):
        engine = make_engine(stage=2, options=StageOptions(disk_cache=tmp_path / "grammars"))
        texts.append(engine.generate_one(PROMPT, constraint=Constraint.regex(KEYS),
                                         sampling=SamplingParams(max_new_tokens=60)).text)
        made = engine.parts.policy
        assert isinstance(made, JumpForwardPolicy)
        assert made.fsm_cache.disk is not None
        loads.append(made.fsm_cache.disk.loads)
        for path in (tmp_path / "grammars").iterdir():
            if len(loads) == 2:
                path.write_bytes(path.read_bytes()[:-1])
    assert loads == [0, 1, 0], "built, used, damaged and built again"
    assert len(set(texts)) == 1
    assert make_engine(stage=2).parts.policy.fsm_cache.disk is None  # type: ignore[attr-defined]  # stage 2's own
