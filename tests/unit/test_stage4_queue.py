"""Stage 4: compiling beside the loop, the cache, and a backend from outside."""

from __future__ import annotations

import threading
import time

import pytest

from shared_runtime.constrain.compiling.compile_pool import CompilePool
from shared_runtime.constrain.compiling.grammar_cache import ENTRY_BYTES
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError, ConstraintError, GrammarTimeoutError
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import AdmitState
from shared_runtime.sampling_params import SamplingParams
from stages.stage4_backends.base_grammar_backend import REGISTRY, Compiled, register_backend
from stages.stage4_backends.grammar_queue import Absent, GrammarQueue, Invalid, RequestState
from tests.conftest import EngineFactory
from tests.unit.stage4_helpers import ThirdParty, context, refuse, request, waits


def _settled(queue: GrammarQueue, count: int) -> dict[str, AdmitState]:
    found: dict[str, AdmitState] = {}
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found |= {req.rid: admission.state for req, admission in queue.poll()}
        time.sleep(0.001)
    return found


def test_requests_for_the_same_grammar_share_one_compile() -> None:
    gate = threading.Event()
    backend = ThirdParty(context(), lambda _: waits(gate))
    queue, key = GrammarQueue(backend, GrammarLimits()), Constraint.ebnf("root")
    reqs = [request(key, rid=str(number)) for number in range(32)]
    assert {queue.admit(req, key).state for req in reqs} == {AdmitState.COMPILING}
    assert queue.poll() == []
    gate.set()
    assert list(_settled(queue, 32)) == [req.rid for req in reqs]
    assert len(backend.compiled) == queue.builds == 1
    grammars = {id(req.grammar.grammar) for req in reqs if isinstance(req.grammar, RequestState)}
    assert len(grammars) == 32
    assert queue.admit(request(key), key).state is AdmitState.READY


def test_absent_invalid_and_compiled_are_three_values() -> None:
    """Museum row 37, and 35: the second failing request costs no compile and gets the same error."""
    backend = ThirdParty(context(), refuse)
    queue, key = GrammarQueue(backend, GrammarLimits()), Constraint.regex("x")
    assert queue.known(key) is Absent.ABSENT
    queue.admit(request(key), key)
    assert _settled(queue, 1) == {"r": AdmitState.REJECTED}
    known = queue.known(key)
    assert isinstance(known, Invalid)
    again = queue.admit(request(key), key)
    assert (again.state, again.error) == (AdmitState.REJECTED, known.error)
    assert len(backend.compiled) == 1
    good = GrammarQueue(ThirdParty(context()), GrammarLimits())
    good.admit(request(key), key)
    _settled(good, 1)
    assert isinstance(good.known(key), Compiled)
    good.reset()
    assert good.known(key) is Absent.ABSENT


def test_a_library_that_raises_anything_is_an_error_of_its_request() -> None:
    def explode(_: Constraint) -> None:
        raise ZeroDivisionError("no more")

    queue, key = GrammarQueue(ThirdParty(context(), explode), GrammarLimits()), Constraint.regex("x")
    queue.admit(request(key), key)
    assert _settled(queue, 1) == {"r": AdmitState.REJECTED}
    known = queue.known(key)
    assert isinstance(known, Invalid)
    assert isinstance(known.error, ConstraintError)
    assert "ZeroDivisionError" in str(known.error)


@pytest.mark.parametrize("error", [MemoryError("taken"), OSError(28, "No space left"), KeyboardInterrupt()], ids=repr)
def test_what_the_machine_did_to_a_compile_does_not_condemn_the_grammar(error: BaseException) -> None:
    errors = [error]

    def fails_once(_: Constraint) -> None:
        if errors:
            raise errors.pop()

    queue, key = GrammarQueue(ThirdParty(context(), fails_once), GrammarLimits()), Constraint.regex("x")
    queue.admit(request(key), key)
    assert _settled(queue, 1) == {"r": AdmitState.REJECTED}
    queue.admit(request(key), key)
    assert _settled(queue, 1) == {"r": AdmitState.READY}


def test_a_grammar_that_eats_the_memory_each_time_is_compiled_ever_more_rarely() -> None:
    def explode(_: Constraint) -> None:
        raise MemoryError

    backend = ThirdParty(context(), explode)
    queue, key = GrammarQueue(backend, GrammarLimits()), Constraint.regex("x")
    for _ in range(40):
        if queue.admit(request(key), key).state is AdmitState.COMPILING:
            _settled(queue, 1)
    assert len(backend.compiled) == queue.builds == 6


def test_a_slow_grammar_holds_up_nobody_behind_it() -> None:
    gate = threading.Event()
    slow, fast = Constraint.regex("slow"), Constraint.regex("fast")
    backend = ThirdParty(context(), lambda key: waits(gate if key == slow else None))
    queue = GrammarQueue(backend, GrammarLimits(), pool=CompilePool(workers=2))
    queue.admit(request(slow, rid="slow"), slow)
    queue.admit(request(fast, rid="fast"), fast)
    assert _settled(queue, 1) == {"fast": AdmitState.READY}
    gate.set()
    assert _settled(queue, 1) == {"slow": AdmitState.READY}


def test_a_stuck_compile_frees_its_request_and_is_counted() -> None:
    gate = threading.Event()
    clock = [0.0]
    backend = ThirdParty(context(), lambda key: waits(gate if key.source == "stuck" else None))
    queue = GrammarQueue(backend, GrammarLimits(compile_timeout=5), pool=CompilePool(workers=1),
                         clock=lambda: time.monotonic() + clock[0])
    key, other = Constraint.regex("stuck"), Constraint.regex("other")
    queue.admit(request(key), key)
    assert queue.poll() == []
    clock[0] = 6.0
    (_, admission), = queue.poll()
    assert isinstance(admission.error, GrammarTimeoutError)
    for _ in range(10):
        queue.admit(request(key), key)
        assert _settled(queue, 1) == {"r": AdmitState.REJECTED}
    assert (queue.stuck, len(backend.compiled)) == (1, 1)
    queue.admit(request(other, rid="other"), other)
    clock[0] = 0.0
    assert _settled(queue, 1) == {"other": AdmitState.READY}
    gate.set()
    queue.admit(request(key), key)
    assert _settled(queue, 1) == {"r": AdmitState.READY}
    assert len(backend.compiled) == 2, "it was only late: what came of it serves the next request"


def test_a_cancelled_request_does_not_come_back_and_its_neighbour_does() -> None:
    gate = threading.Event()
    queue = GrammarQueue(ThirdParty(context(), lambda _: waits(gate)), GrammarLimits())
    shared, own = Constraint.regex("shared"), Constraint.regex("own")
    for rid, key in (("a", shared), ("b", shared), ("c", own)):
        queue.admit(request(key, rid=rid), key)
    for rid in ("a", "c", "c", "nobody"):
        queue.cancel(rid)
    gate.set()
    assert _settled(queue, 1) == {"b": AdmitState.READY}
    assert queue.poll() == []


def test_the_cache_forgets_the_least_recently_used() -> None:
    queue = GrammarQueue(ThirdParty(context()), GrammarLimits())
    queue.cache.limit_bytes = 3 * (100 + ENTRY_BYTES) + 50
    for source in ("a", "b", "c", "a", "d"):
        key = Constraint.regex(source)
        if queue.admit(request(key), key).state is AdmitState.COMPILING:
            _settled(queue, 1)
    kept = [source for source in "abcd" if not isinstance(queue.known(Constraint.regex(source)), Absent)]
    assert kept == ["a", "c", "d"]


def test_a_backend_registered_from_outside_serves_an_engine(make_engine: EngineFactory) -> None:
    register_backend("third-party", ThirdParty)
    try:
        engine = make_engine(stage=4, backend="third-party")
        result = engine.generate_one("x", constraint=Constraint.ebnf("root"), sampling=SamplingParams(
            max_new_tokens=4, ignore_eos=True))
        assert len(result.token_ids) == 4
    finally:
        del REGISTRY.factories["third-party"]
    with pytest.raises(ConfigError, match="no grammar backend 'third-party'"):
        make_engine(stage=4, backend="third-party")


def test_a_grammar_that_fails_in_the_middle_ends_its_request_alone(make_engine: EngineFactory) -> None:
    """hand-059, museum row 46: the fifth token makes the library raise."""
    register_backend("third-party", ThirdParty)
    try:
        engine = make_engine(stage=4, backend="third-party")
        results = engine.generate(["x", "y", "z"], sampling=SamplingParams(max_new_tokens=8, ignore_eos=True),
                                  constraint=[Constraint.ebnf("5"), Constraint.ebnf("a"), Constraint.ebnf("b")])
    finally:
        del REGISTRY.factories["third-party"]
    assert [result.finish_reason for result in results] == ["error", "length", "length"]
    assert "the library gave up" in str(results[0].error)
    assert len(results[0].token_ids) == 4


def test_masks_that_take_too_long_end_their_request(make_engine: EngineFactory) -> None:
    engine = make_engine(stage=4, backend="xgrammar", limits=GrammarLimits(mask_timeout=1e-9))
    slow, free = engine.generate(["x", "y"], sampling=SamplingParams(max_new_tokens=8, ignore_eos=True),
                                 constraint=[Constraint.regex("[a-z]+"), None])
    assert isinstance(slow.error, GrammarTimeoutError)
    assert len(slow.token_ids) == 2
    assert (free.finish_reason, len(free.token_ids)) == ("length", 8)
