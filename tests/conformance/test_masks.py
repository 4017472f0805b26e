"""(a) The allowed set of every state equals the independent oracle's, token for token, both ways."""

from __future__ import annotations

import random
import time

import pytest
import torch

from shared_runtime.constrain.using.walk import Walk
from shared_runtime.constraint import Constraint
from shared_runtime.errors import UnsatisfiableConstraintError
from shared_runtime.forward_batch import ForwardMode
from shared_runtime.metrics import RequestMetrics
from shared_runtime.policy import AdmitState, SampledRow, StagePolicy
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.tokenizer import Tokenizer
from tests.conformance.harness import REGEXES, Target, Walkers, cases, each_target, policy_of
from tests.conformance.walks import hold_to_oracle
from tests.oracles.nfa_oracle import MaskOracle
from tests.oracles.random_regex import random_pattern

HANDED = tuple(case.constraint.source for case in cases("regex") if case.constraint and case.expect == "ok")


def _compare_along(target: Target, walk: Walk, oracle: MaskOracle, tokenizer: Tokenizer, rng: random.Random,
                   steps: int) -> int:
    """Walk a random allowed path and compare every state's mask with the oracle's; returns the states compared."""
    prefix = b""
    for step in range(steps):
        allowed, expected = walk.allowed(), oracle.allowed(prefix)
        hold_to_oracle(target, allowed, expected, prefix)
        ids = sorted(allowed - tokenizer.vocabulary.stop_ids)
        if not ids:
            return step + 1
        # Half of the time a short token, so that walks end inside characters and see many states.
        short = [i for i in ids if len(tokenizer.vocabulary.token_bytes[i]) <= 2]
        token_id = rng.choice(short if short and rng.random() < 0.5 else ids)
        assert walk.feed(token_id) is None
        prefix += tokenizer.vocabulary.token_bytes[token_id]
    return steps


@each_target
@pytest.mark.parametrize("pattern", [*REGEXES, *HANDED])
def test_mask_equals_the_oracle(target: Target, pattern: str, walkers: Walkers, tokenizer: Tokenizer) -> None:
    oracle = MaskOracle(pattern, tokenizer.vocabulary)
    rng = random.Random(pattern)
    with walkers(target).start(Constraint.regex(pattern)) as walk:
        assert _compare_along(target, walk, oracle, tokenizer, rng, steps=5) > 0


@each_target
@pytest.mark.slow
def test_mask_equals_the_oracle_on_random_regexes(target: Target, walkers: Walkers, tokenizer: Tokenizer) -> None:
    rng = random.Random(20240108)
    states = 0
    for pattern in [random_pattern(rng) for _ in range(60)]:
        oracle = MaskOracle(pattern, tokenizer.vocabulary)
        try:
            walk = walkers(target).start(Constraint.regex(pattern))
        except UnsatisfiableConstraintError:
            assert not oracle.viable(b""), pattern
            continue
        with walk:
            states += _compare_along(target, walk, oracle, tokenizer, rng, steps=3)
    assert states > 100


@each_target
def test_free_rows_stay_bit_identical(target: Target, tokenizer: Tokenizer) -> None:
    """(d), at the seam: the policy rewrites its own rows and no other, NaN and infinities included."""
    policy = policy_of(target, tokenizer)
    reqs = [_request("free-1", None), _request("bound", Constraint.regex("[0-9]{4}")), _request("free-2", None)]
    _admit(policy, reqs[1])
    logits = torch.randn((3, tokenizer.vocabulary.width))
    logits[0, 7], logits[2, 9] = float("nan"), float("inf")
    before = logits.clone()
    filled = policy.constrain(logits, ScheduleBatch(ForwardMode.DECODE, rows=[], sampled=reqs), [0, 0, 0])
    assert filled == [1]
    for row in (0, 2):
        assert torch.equal(logits[row].view(torch.int32), before[row].view(torch.int32))
    allowed = torch.isfinite(logits[1])
    assert 0 < int(allowed.sum()) < tokenizer.vocabulary.width
    assert torch.equal(logits[1][allowed], before[1][allowed])


@each_target
def test_refusal_leaves_the_state_untouched(target: Target, walkers: Walkers, tokenizer: Tokenizer) -> None:
    """hand-060: after a refused token the mask is bit-identical, also when its first bytes were good."""
    with walkers(target).start(Constraint.regex(r'\{"a": [0-9]{2,4}\}')) as walk:
        assert walk.feed_allowed(tokenizer.encode('{"a": 1')) >= 3
        before = walk.mask()
        good_start = tokenizer.encode('"}')[0]
        for bad in (good_start, tokenizer.encode("x")[0], 0, 1, 17):
            if not before[bad]:
                assert walk.feed(bad) is not None
                assert torch.equal(walk.mask(), before)


@each_target
def test_each_request_has_its_own_state(target: Target, walkers: Walkers, tokenizer: Tokenizer) -> None:
    constraint = Constraint.regex("(red|green|blue), done")
    walker = walkers(target)
    with walker.start(constraint) as first, walker.start(constraint) as second:
        before = second.mask()
        assert first.feed_allowed(tokenizer.encode("red, d")) > 0
        assert torch.equal(second.mask(), before)


@each_target
def test_accept_reports_rows_in_order(target: Target, tokenizer: Tokenizer) -> None:
    policy = policy_of(target, tokenizer)
    reqs = [_request("a", Constraint.choice(["yes"])), _request("free", None), _request("b", Constraint.choice(["no"]))]
    for req in reqs:
        if req.constraint is not None:
            _admit(policy, req)
    ids = [tokenizer.encode("yes")[0], 17, tokenizer.encode("yes")[0]]
    batch = ScheduleBatch(ForwardMode.DECODE, rows=[], sampled=reqs)
    results = policy.accept(batch, [SampledRow(req, (i,)) for req, i in zip(reqs, ids, strict=True)])
    assert [result.error is None for result in results] == [True, True, False]


def _request(rid: str, constraint: Constraint | None) -> Request:
    return Request(rid=rid, prompt_ids=[17], prompt="", sampling=SamplingParams(), seed=0, constraint=constraint,
                   metrics=RequestMetrics(arrival=0.0))


def _admit(policy: StagePolicy, req: Request) -> None:
    """Admit a request, and wait for its grammar where that is compiled beside the loop."""
    admission = policy.admit(req)
    deadline = time.monotonic() + 60
    while admission.state is AdmitState.COMPILING and time.monotonic() < deadline:
        admission = next((settled for polled, settled in policy.poll() if polled is req), admission)
        time.sleep(0.001)
    assert admission.state is AdmitState.READY
