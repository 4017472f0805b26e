"""Stage 1's hand in the loop: what it admits, masks, accepts and keeps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from shared_runtime.constraint import Constraint
from shared_runtime.errors import (
    ConstraintError,
    EngineStateError,
    GrammarTimeoutError,
    JumpforwardError,
    UnsatisfiableConstraintError,
    UnsupportedConstraintError,
)
from shared_runtime.policy import AdmitState, SampledRow
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from stages.stage1_copied_fsm.decoder import CopiedFSMPolicy, RequestState
from tests.unit.stage1_helpers import EOS, batch_of, policy_over, request, vocabulary_of

pytestmark = pytest.mark.model

A, B, AB = 1, 2, 3
PATTERN = Constraint.regex("(ab)+")


@pytest.fixture(scope="module")
def tokenizer(embedded_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(embedded_folder)


@pytest.fixture
def policy(tokenizer: Tokenizer) -> CopiedFSMPolicy:
    return policy_over(vocabulary_of(b"a", b"b", b"ab"), tokenizer)


@pytest.fixture(scope="module")
def real(tokenizer: Tokenizer) -> CopiedFSMPolicy:
    return policy_over(tokenizer.vocabulary, tokenizer)


def admitted(policy: CopiedFSMPolicy, constraint: Constraint | None, sampling: SamplingParams | None = None) -> Request:
    req = request(constraint, sampling)
    assert policy.admit(req).state is AdmitState.READY
    return req


def refusal(policy: CopiedFSMPolicy, constraint: Constraint) -> JumpforwardError:
    admission = policy.admit(request(constraint))
    assert admission.state is AdmitState.REJECTED
    assert admission.error is not None
    return admission.error


def allowed(policy: CopiedFSMPolicy, req: Request, position: int) -> set[int]:
    logits = torch.zeros(1, policy.vocabulary.vocabulary.width)
    assert policy.constrain(logits, batch_of(req), [position]) == [0]
    return set(torch.isfinite(logits[0]).nonzero()[:, 0].tolist())


def feed(policy: CopiedFSMPolicy, req: Request, *token_ids: int) -> tuple[int, bool, JumpforwardError | None]:
    result = policy.accept(batch_of(req), [SampledRow(req, token_ids)])[0]
    return result.n_accepted, result.terminated, result.error


def test_the_mask_follows_the_tokens_and_eos_ends_where_the_pattern_does(policy: CopiedFSMPolicy) -> None:
    req = admitted(policy, PATTERN)
    assert allowed(policy, req, 0) == {A, AB}
    assert feed(policy, req, A) == (1, False, None)
    assert allowed(policy, req, 1) == {B}
    assert feed(policy, req, B) == (1, False, None)
    assert allowed(policy, req, 2) == {A, AB, EOS}
    assert feed(policy, req, EOS) == (1, True, None)
    assert policy.describe(req) == {"state": 2, "accepting": True, "allowed_tokens": 0, "terminated": True}


def test_a_refused_token_leaves_the_state_untouched(policy: CopiedFSMPolicy) -> None:
    """hand-060. Wrong tokens, tokens with a good beginning, EOS too early, ids outside the vocabulary."""
    req = admitted(policy, Constraint.regex("(ab)+a"))
    feed(policy, req, A)
    before, described = allowed(policy, req, 1), policy.describe(req)
    for bad in (A, AB, EOS, 4, 6, 7, -1, 10**9):
        accepted, terminated, error = feed(policy, req, bad)
        assert (accepted, terminated) == (0, False)
        assert isinstance(error, ConstraintError)
        assert str(bad) in str(error)
        assert allowed(policy, req, 1) == before
        assert policy.describe(req) == described
    assert feed(policy, req, B, A) == (2, False, None)


def test_a_row_of_tokens_is_taken_up_to_the_first_that_is_refused(policy: CopiedFSMPolicy) -> None:
    req = admitted(policy, PATTERN)
    accepted, terminated, error = feed(policy, req, A, B, B, A)
    assert (accepted, terminated) == (2, False)
    assert error is not None
    assert allowed(policy, req, 2) == {A, AB, EOS}


def test_nothing_is_taken_behind_the_end(policy: CopiedFSMPolicy) -> None:
    req = admitted(policy, PATTERN)
    assert feed(policy, req, AB, EOS, AB) == (2, True, None)
    accepted, _, error = feed(policy, req, AB)
    assert accepted == 0
    assert error is not None
    with pytest.raises(EngineStateError):
        allowed(policy, req, 2)


def test_a_mask_for_another_position_than_the_next_is_a_defect(policy: CopiedFSMPolicy) -> None:
    """Museum row 30: upstream's FSM ran ahead of the text, and nothing noticed."""
    req = admitted(policy, PATTERN)
    for position in (1, 2):
        with pytest.raises(EngineStateError, match=f"token {position}.*accepted 0"):
            allowed(policy, req, position)
    feed(policy, req, A)
    with pytest.raises(EngineStateError, match=r"token 0.*accepted 1"):
        allowed(policy, req, 0)


def test_neighbours_without_a_constraint_keep_their_logits_bit_for_bit(policy: CopiedFSMPolicy) -> None:
    first, second = admitted(policy, PATTERN), admitted(policy, Constraint.choice(["b"]))
    free = [admitted(policy, None) for _ in range(2)]
    logits = torch.randn(4, policy.vocabulary.vocabulary.width, generator=torch.Generator().manual_seed(0))
    logits[0, 4] = float("nan")
    before = logits.clone()
    assert policy.constrain(logits, batch_of(free[0], first, free[1], second), [5, 0, 0, 0]) == [1, 3]
    assert torch.equal(logits[[0, 2]].view(torch.int32), before[[0, 2]].view(torch.int32))
    for row, kept in ((1, [A, AB]), (3, [B])):
        assert torch.equal(logits[row, kept], before[row, kept])
        assert torch.isinf(logits[row]).sum() == logits.shape[1] - len(kept)
    results = policy.accept(batch_of(*free), [SampledRow(req, (7, 8)) for req in free])
    assert [(result.n_accepted, result.terminated, result.error) for result in results] == [(2, False, None)] * 2
    assert policy.describe(free[0]) == {}


def test_requests_share_an_fsm_and_nothing_else(policy: CopiedFSMPolicy) -> None:
    first, second = admitted(policy, PATTERN), admitted(policy, PATTERN)
    feed(policy, first, A)
    assert allowed(policy, second, 0) == {A, AB}
    assert policy.cache.builds == 1
    assert policy.vocabulary.builds == 1


def test_a_retracted_request_goes_on_where_it_was(policy: CopiedFSMPolicy) -> None:
    req = admitted(policy, PATTERN)
    feed(policy, req, A)
    policy.retract(req)
    assert allowed(policy, req, 1) == {B}


def test_release_is_idempotent_and_a_released_request_is_never_free(policy: CopiedFSMPolicy) -> None:
    req = admitted(policy, PATTERN)
    for _ in range(2):
        policy.release(req, "stop")
    assert policy.describe(req) == {}
    with pytest.raises(EngineStateError, match="without a grammar"):
        allowed(policy, req, 0)
    with pytest.raises(EngineStateError, match="without a grammar"):
        feed(policy, req, A)
    policy.release(request(PATTERN), "abort")
    policy.cancel("never seen")
    assert policy.poll() == []
    assert policy.before_decode(batch_of(req)).reqs == ()


@pytest.mark.parametrize(("constraint", "stage"), [
    (Constraint("json_schema", "{}"), 3), (Constraint("json_object"), 4), (Constraint("ebnf", "root ::= \"a\""), 4),
    (Constraint("structural_tag", "{}"), 4),
])
def test_what_came_later_is_refused_naming_the_first_stage_that_has_it(policy: CopiedFSMPolicy, constraint: Constraint,
                                                                       stage: int) -> None:
    error = refusal(policy, constraint)
    assert isinstance(error, UnsupportedConstraintError)
    assert error.first_stage == stage
    assert f"--stage {stage}" in str(error)


@pytest.mark.parametrize("pattern", ["(ab", "a**", "[z-a]", "(?=a)", r"\bab"])
def test_a_bad_regex_is_refused_twice_and_the_next_request_is_served(policy: CopiedFSMPolicy, pattern: str) -> None:
    """Museum rows 1 and 31: it hung the server, later it killed it, later still it was ignored."""
    first, second = (refusal(policy, Constraint.regex(pattern)) for _ in range(2))
    assert isinstance(first, ConstraintError)
    assert str(first) == str(second)
    assert policy.cache.builds == 1
    assert allowed(policy, admitted(policy, PATTERN), 0) == {A, AB}


def test_deep_nesting_is_an_answer_or_a_clear_error(policy: CopiedFSMPolicy) -> None:
    for depth in (20, 80, 150, 400):
        pattern = "(" * depth + "ab" + "(ab)?)*" * depth
        admission = policy.admit(request(Constraint.regex(pattern)))
        assert admission.state is AdmitState.READY or isinstance(admission.error, ConstraintError)


def test_too_large_a_pattern_is_refused_and_the_next_request_is_served(policy: CopiedFSMPolicy) -> None:
    error = refusal(policy, Constraint.regex("(a|b)*a(a|b){20}"))
    assert isinstance(error, GrammarTimeoutError)
    assert "20000 states" in str(error)
    assert allowed(policy, admitted(policy, PATTERN), 0) == {A, AB}


def test_a_choice_is_taken_literally(policy: CopiedFSMPolicy) -> None:
    req = admitted(policy, Constraint.choice(["a", "ab", ""]))
    assert allowed(policy, req, 0) == {A, AB, EOS}
    feed(policy, req, A)
    assert allowed(policy, req, 1) == {B, EOS}
    assert isinstance(refusal(policy, Constraint.choice(["(ab)+", "b?"])), UnsatisfiableConstraintError)


def test_control_tokens_are_never_matched_by_their_printed_text(real: CopiedFSMPolicy, tokenizer: Tokenizer) -> None:
    """`<|im_end|>` as text is spelled by ordinary tokens; id 2 ends the answer, where the pattern ends."""
    req = admitted(real, Constraint.regex(r"(<\|im_end\|>|<file_sep>|<\|im_start\|>)+"))
    text, emitted = b"", list[int]()
    while text != b"<|im_end|><file_sep>":
        ids = allowed(real, req, len(emitted))
        stops = {2} if text == b"<|im_end|>" else set()
        assert {i for i in ids if i <= 16} == stops, text
        left = b"<|im_end|><file_sep>"[len(text):]
        spelled = real.vocabulary.vocabulary.token_bytes
        fitting = [i for i in ids if spelled[i] and left.startswith(spelled[i])]
        emitted.append(max(fitting, key=lambda i: len(spelled[i])))
        text += spelled[emitted[-1]]
        assert feed(real, req, emitted[-1]) == (1, False, None)
    assert len(emitted) >= 4
    assert allowed(real, req, len(emitted)) & set(range(17)) == {2}


def test_a_pattern_with_an_unspellable_branch_keeps_the_others(real: CopiedFSMPolicy) -> None:
    """No token of the real vocabulary has the byte 1D."""
    req = admitted(real, Constraint.regex("ad\x1d|ok"))
    spelled = real.vocabulary.vocabulary.token_bytes
    assert {spelled[i] for i in allowed(real, req, 0)} == {b"o", b"ok"}
    error = refusal(real, Constraint.regex("x\x04y"))
    assert isinstance(error, UnsatisfiableConstraintError)
    assert "byte 04" in str(error)


def test_a_blank_that_begins_a_character_is_refused_where_none_may_come(real: CopiedFSMPolicy) -> None:
    """hand-004: token b' \\xf0\\x9f\\x98' is a blank and the start of another character."""
    req = admitted(real, Constraint.regex("[🌀-🌟]{2}"))
    spelled = real.vocabulary.vocabulary.token_bytes
    assert all("🌀".encode().startswith(spelled[i][:3]) for i in allowed(real, req, 0))


def test_stage_1_alone_imports_no_grammar_library_of_a_later_stage() -> None:
    code = ("from stages import get_stage; get_stage(1); import sys; "
            "print(sorted({'transformers', 'xgrammar', 'llguidance', 'outlines', 'outlines_core'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_state_is_small_and_the_fsm_shared(policy: CopiedFSMPolicy) -> None:
    first, second = admitted(policy, PATTERN), admitted(policy, PATTERN)
    assert isinstance(first.grammar, RequestState)
    assert isinstance(second.grammar, RequestState)
    assert first.grammar.fsm is second.grammar.fsm
