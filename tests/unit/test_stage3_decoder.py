"""Stage 3's hand in the loop: guides, one mask a batch, and jumps that index and map must agree on."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import ConstraintError, EngineStateError, JumpforwardError, UnsupportedConstraintError
from shared_runtime.policy import AdmitState, SampledRow, StageContext, StageOptions
from shared_runtime.request import Request
from shared_runtime.result import Result
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.trace import RewriteRecord
from stages.stage3_outlines.decoder import OutlinesPolicy, RequestState
from stages.stage3_outlines.fsm_cache import CompiledRegex
from tests.conftest import EngineFactory
from tests.unit.stage1_helpers import EOS, batch_of, request, vocabulary_of

pytestmark = pytest.mark.model

A, B, AB = 1, 2, 3
PATTERN = Constraint.regex("(ab)+")
PROMPT = "Describe a person:\n"
KEYS = r'\{"name": "[a-z]{2,6}", "age": [0-9]{2}, "city": "(Paris|Praha|Oslo)"\}'


@pytest.fixture(scope="module")
def tokenizer(embedded_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(embedded_folder)


@pytest.fixture(scope="module")
def policy(tokenizer: Tokenizer) -> OutlinesPolicy:
    return OutlinesPolicy(StageContext(vocabulary_of(b"a", b"b", b"ab"), tokenizer, torch.device("cpu")))


def admitted(policy: OutlinesPolicy, constraint: Constraint | None) -> Request:
    req = request(constraint)
    admission = policy.admit(req)
    assert admission.state is AdmitState.READY, admission.error
    return req


def refusal(policy: OutlinesPolicy, constraint: Constraint) -> JumpforwardError:
    admission = policy.admit(request(constraint))
    assert admission.state is AdmitState.REJECTED
    assert admission.error is not None
    return admission.error


def allowed(policy: OutlinesPolicy, req: Request, position: int) -> set[int]:
    logits = torch.zeros(1, 7)
    assert policy.constrain(logits, batch_of(req), [position]) == [0]
    return set(torch.isfinite(logits[0]).nonzero()[:, 0].tolist())


def feed(policy: OutlinesPolicy, req: Request, *token_ids: int) -> tuple[int, bool, JumpforwardError | None]:
    result = policy.accept(batch_of(req), [SampledRow(req, token_ids)])[0]
    return result.n_accepted, result.terminated, result.error


def test_the_mask_follows_the_tokens_and_eos_ends_where_the_pattern_does(policy: OutlinesPolicy) -> None:
    req = admitted(policy, PATTERN)
    assert allowed(policy, req, 0) == {A, AB}
    assert feed(policy, req, A) == (1, False, None)
    assert allowed(policy, req, 1) == {B}
    assert feed(policy, req, B) == (1, False, None)
    assert allowed(policy, req, 2) == {A, AB, EOS}
    assert feed(policy, req, EOS) == (1, True, None)
    shown = policy.describe(req)
    assert (shown["accepting"], shown["allowed_tokens"], shown["terminated"]) == (True, 0, True)


def test_a_refused_token_leaves_the_state_untouched(policy: OutlinesPolicy) -> None:
    """Also the id of the terminator (7 is the width here) and the library's own end (8): no tokens of the model."""
    req = admitted(policy, Constraint.regex("(ab)+a"))
    feed(policy, req, A)
    before, described = allowed(policy, req, 1), policy.describe(req)
    for bad in (A, AB, EOS, 4, 6, 7, 8, -1, 10**12):
        accepted, terminated, error = feed(policy, req, bad)
        assert (accepted, terminated) == (0, False)
        assert isinstance(error, ConstraintError)
        assert str(bad) in str(error)
        assert allowed(policy, req, 1) == before
        assert policy.describe(req) == described
    assert feed(policy, req, B, A) == (2, False, None)
    assert feed(policy, req, EOS) == (1, True, None)
    assert feed(policy, req, A)[0] == 0


def test_the_mask_is_that_of_the_batch_as_it_is(policy: OutlinesPolicy) -> None:
    """Museum rows 25, 26, 28, 29: free rows untouched, right rows after the batch has changed, none left over."""
    first, second = admitted(policy, PATTERN), admitted(policy, Constraint.choice(["b"]))
    free = [request(None, rid=f"free-{index}") for index in range(3)]
    for reqs in ([first, free[0], second], [free[0], free[1], first, free[2], second], [second], free):
        logits = torch.randn(len(reqs), 7, generator=torch.Generator().manual_seed(0))
        before = logits.clone()
        bound = [row for row, req in enumerate(reqs) if req.constraint is not None]
        assert policy.constrain(logits, batch_of(*reqs), [0] * len(reqs)) == bound
        for row, req in enumerate(reqs):
            kept = list(range(7)) if req.constraint is None else [A, AB] if req is first else [B]
            assert torch.equal(logits[row, kept], before[row, kept])
            assert int(torch.isinf(logits[row]).sum()) == 7 - len(kept)


def test_a_mask_for_another_position_than_the_next_is_a_defect(policy: OutlinesPolicy) -> None:
    """Museum row 30: a middle chunk of a prompt advanced the FSM."""
    req = admitted(policy, PATTERN)
    with pytest.raises(EngineStateError, match=r"token 1.*accepted 0"):
        allowed(policy, req, 1)
    feed(policy, req, AB, EOS)
    with pytest.raises(EngineStateError):
        allowed(policy, req, 2)
    policy.release(req, "stop")
    policy.release(req, "stop")
    with pytest.raises(EngineStateError, match="without a grammar"):
        feed(policy, req, A)


@pytest.mark.parametrize(("constraint", "stage"), [
    (Constraint("json_object"), 4), (Constraint("ebnf", 'root ::= "a"'), 4), (Constraint("structural_tag", "{}"), 4)])
def test_what_came_later_is_refused(policy: OutlinesPolicy, constraint: Constraint, stage: int) -> None:
    error = refusal(policy, constraint)
    assert isinstance(error, UnsupportedConstraintError)
    assert error.first_stage == stage


@pytest.mark.parametrize("bad", [Constraint.regex("(ab"), Constraint.json_schema('{"type": "strnig"}'),
                                 Constraint.json_schema("{"), Constraint.regex("x")])
def test_a_bad_constraint_is_refused_twice_and_the_next_one_served(policy: OutlinesPolicy, bad: Constraint) -> None:
    """Museum row 31: it killed the server, and later it was ignored."""
    misses = policy.cache.cache.misses
    first, second = (refusal(policy, bad) for _ in range(2))
    assert isinstance(first, ConstraintError)
    assert str(first) == str(second)
    assert policy.cache.cache.misses == misses + 1
    assert allowed(policy, admitted(policy, PATTERN), 0) == {A, AB}


def test_requests_share_what_is_compiled_and_no_state(policy: OutlinesPolicy) -> None:
    first, second = admitted(policy, PATTERN), admitted(policy, PATTERN)
    feed(policy, first, A)
    policy.retract(first)
    assert (allowed(policy, first, 1), allowed(policy, second, 0)) == ({B}, {A, AB})
    assert isinstance(first.grammar, RequestState)
    assert isinstance(second.grammar, RequestState)
    assert first.grammar.compiled is second.grammar.compiled
    assert policy.poll() == []
    assert policy.before_decode(batch_of(first)).reqs == []
    policy.cancel("never seen")


# ---------------------------------------------------------------- jumps


def steer(tokenizer: Tokenizer, *pieces: bytes, **params: object) -> SamplingParams:
    """Greedy sampling that takes these pieces wherever the grammar lets it, earlier ones first."""
    bias = {tokenizer.vocabulary.token_bytes.index(piece): 1e5 - 1e3 * rank for rank, piece in enumerate(pieces)}
    return SamplingParams(logit_bias=bias, **{"max_new_tokens": 60, **params})  # type: ignore[arg-type]  # keywords


def run_checked(engine: Engine, constraint: Constraint, sampling: SamplingParams,
                prompt: str = PROMPT) -> tuple[Result, list[RewriteRecord], str]:
    """One request, checked after every turn: its result, its jumps (with a trace), and what was streamed."""
    name, = engine.add_request(prompt, sampling=sampling, constraint=constraint)
    jumps, streamed, result = list[RewriteRecord](), "", None
    while engine.has_work:
        record = engine.step()
        engine.check_integrity()
        for req in engine.scheduler.queues.in_memory:
            assert isinstance(req.grammar, RequestState)
            assert req.grammar.accepted == len(req.output_ids) == len(req.origins)
            if req.grammar.compiled.jumps is not None:  # museum row 6: both states are those of the text
                spelled = engine.tokenizer.vocabulary.decode(req.output_ids)
                assert req.grammar.map_state == req.grammar.compiled.jumps.dfa.walk(0, spelled)
        jumps += [part.jump for part in (record.requests if record else []) if part.jump is not None]
        for event in engine.take_events():
            streamed += event.text
            result = event.result or result
    assert result is not None
    assert result.rid == name
    return result, jumps, streamed


@pytest.mark.parametrize("constraint", [
    Constraint.regex(KEYS), Constraint.choice(["The answer is yes.", "There is no answer."]),
    Constraint.json_schema({"type": "object", "properties": {"first name": {"enum": ["Ada", "Bea"]}, "years": {
        "type": "integer", "minimum": 10, "maximum": 99}}, "required": ["first name", "years"]})], ids=str)
def test_forced_text_is_written_and_the_rest_sampled(constraint: Constraint, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=3, trace=True)
    result, jumps, streamed = run_checked(engine, constraint, SamplingParams(max_new_tokens=60))
    plain, none, _ = run_checked(make_engine(stage=3, trace=True, options=StageOptions(jump_forward=False)), constraint,
                                 SamplingParams(max_new_tokens=60))
    assert (result.finish_reason, plain.finish_reason) == ("stop", "stop")
    assert streamed == result.text
    assert jumps
    assert not none
    assert result.counts["jumped"] > 0 == plain.counts["jumped"]
    assert result.metrics.forward_passes < plain.metrics.forward_passes
    for note in jumps:
        assert note.new_ids[:note.common_prefix] == note.old_ids[:note.common_prefix]
        text = engine.tokenizer.decode(note.new_ids)
        assert result.prompt_ids + note.new_ids == engine.tokenizer.encode(PROMPT + text)


def test_an_optional_tail_is_not_forced(make_engine: EngineFactory, tokenizer: Tokenizer) -> None:
    """Museum row 13, here with interegular's FSM."""
    sampling = steer(tokenizer, b"a")
    sampling = replace(sampling, logit_bias={**sampling.logit_bias, 2: 1e4})
    result, jumps, _ = run_checked(make_engine(stage=3, trace=True), Constraint.regex("abx(cde)?"), sampling)
    assert [note.text for note in jumps] == ["bx"]
    assert (result.text, result.finish_reason) == ("abx", "stop")


def test_half_a_character_is_completed_before_the_text_behind_it(make_engine: EngineFactory,
                                                                 tokenizer: Tokenizer) -> None:
    result, jumps, _ = run_checked(make_engine(stage=3, trace=True), Constraint.choice(["霍格沃茨", "霍比特人"]),
                                   steer(tokenizer, b"\xe9", b"\xe6", b"\xa0"))
    assert [note.text for note in jumps] == ["霍", "格沃茨"]
    assert result.text == "霍格沃茨"


def _everything(req: Request) -> object:
    grammar = req.grammar
    assert isinstance(grammar, RequestState)
    return copy.deepcopy((req.output_ids, req.origins, req.logprobs, req.prompt_ids, req.table_row, req.kv_len,
                          req.prefix_len, req.metrics, req.text, grammar.guide.state, grammar.map_state,
                          grammar.accepted)), id(req.last_node), id(req.grammar)


@pytest.fixture
def about_to_decode(make_engine: EngineFactory, tokenizer: Tokenizer) -> Iterator[tuple[Engine, Request]]:
    """A request that has sampled `b` of `bcdef(x|y)` and is about to be jumped."""
    engine = make_engine(stage=3)
    engine.add_request(PROMPT, sampling=steer(tokenizer, b"b", top_logprobs=2),
                       constraint=Constraint.regex("bcdef[xy]"))
    engine.step()
    req, = engine.scheduler.queues.running
    yield engine, req
    while engine.has_work:
        engine.step()
        engine.check_integrity()
    result = engine.take_events()[-1].result
    assert result is not None
    assert re.fullmatch("bcdef[xy]", result.text)


def test_a_jump_that_the_index_refuses_changes_nothing(about_to_decode: tuple[Engine, Request]) -> None:
    """Index and map have different states. Here the map is of another pattern, and the index has the last word."""
    engine, req = about_to_decode
    policy, grammar = engine.parts.policy, req.grammar
    assert isinstance(policy, OutlinesPolicy)
    assert isinstance(grammar, RequestState)
    own = grammar.compiled
    other = policy.cache.get(Constraint.regex("bcxef[xy]"))
    grammar.compiled = CompiledRegex(own.index, other.jumps, 0)
    assert grammar.forced() == b"cxef"
    before, usage = _everything(req), engine.parts.memory.usage()
    requeue = policy.before_decode(ScheduleBatch.about_to_decode([req]))
    assert (requeue.reqs, requeue.notes) == ([], {})
    assert _everything(req) == before
    assert engine.parts.memory.usage() == usage
    grammar.compiled = own


def test_a_request_without_a_map_is_served_without_jumps(about_to_decode: tuple[Engine, Request]) -> None:
    engine, req = about_to_decode
    assert isinstance(req.grammar, RequestState)
    req.grammar.compiled = replace(req.grammar.compiled, jumps=None)
    assert engine.parts.policy.before_decode(ScheduleBatch.about_to_decode([req])).reqs == []


@pytest.mark.parametrize("turn", range(5))
def test_retraction_at_every_turn(turn: int, make_engine: EngineFactory) -> None:
    """Museum row 6: jump, retract, go on. The text and the ids are those of an undisturbed run."""
    undisturbed, _, _ = run_checked(make_engine(stage=3, exact=True, trace=True), Constraint.regex(KEYS),
                                    SamplingParams(max_new_tokens=60))
    engine = make_engine(stage=3, exact=True)
    engine.add_request(PROMPT, sampling=SamplingParams(max_new_tokens=60), constraint=Constraint.regex(KEYS))
    for _ in range(turn + 1):
        engine.step()
    for req in list(engine.scheduler.queues.running):
        engine.scheduler._builder.retract(req)
    while engine.has_work:
        engine.step()
        engine.check_integrity()
    result = engine.take_events()[-1].result
    assert result is not None
    assert (result.text, result.token_ids) == (undisturbed.text, undisturbed.token_ids)
