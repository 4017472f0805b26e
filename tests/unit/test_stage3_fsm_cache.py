"""What stage 3 compiles: within limits, once, and right where the library would not be."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from shared_runtime.constrain.using.walk import GrammarWalker
from shared_runtime.constraint import Constraint
from shared_runtime.errors import (
    ConfigError,
    ConstraintError,
    GrammarTimeoutError,
    UnsatisfiableConstraintError,
    UnsupportedConstraintError,
)
from shared_runtime.grammar_limits import GrammarLimits
from shared_runtime.policy import StageContext, StageOptions
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary
from stages.stage3_outlines import fsm_cache
from stages.stage3_outlines.decoder import OutlinesPolicy
from stages.stage3_outlines.fsm_cache import END
from tests.oracles.byte_reachability import ByteReachability
from tests.oracles.random_regex import random_pattern
from tests.unit.stage1_helpers import vocabulary_of

pytestmark = pytest.mark.model

Make = Callable[..., OutlinesPolicy]


@pytest.fixture(scope="module")
def tokenizer(embedded_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(embedded_folder)


@pytest.fixture
def make(tokenizer: Tokenizer) -> Make:
    def build(vocabulary: Vocabulary | None = None, *, options: StageOptions | None = None,
              **limits: float) -> OutlinesPolicy:
        return OutlinesPolicy(StageContext(vocabulary or tokenizer.vocabulary, tokenizer, torch.device("cpu"),
                                           GrammarLimits(**limits), options=options or StageOptions()))  # type: ignore[arg-type]  # numbers

    return build


def test_a_build_that_takes_too_long_is_stopped(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library has no way to stop; this one takes seconds."""
    policy = make()
    process, run = policy.cache.process, policy.cache.process.run
    policy.cache.get(Constraint.regex("[0-9]{2}"))
    with monkeypatch.context() as patched:
        patched.setattr(process, "run", lambda name, job, timeout: run(name, job, 0.05))
        with pytest.raises(GrammarTimeoutError, match="longer than 10 s"):
            policy.cache.get(Constraint.regex(".{0,350}"))
    assert process.starts == 1
    policy.cache.get(Constraint.regex("[0-9]{3}"))
    assert process.starts == 2


@pytest.mark.parametrize(("end", "said"), [("late", "longer than 10 s"), ("dead", "died")])
def test_what_a_slow_or_full_machine_ended_is_tried_again(end: str, said: str, make: Make,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    policy, wanted = make(), Constraint.regex("[a-c]{3}")
    with monkeypatch.context() as patched:
        patched.setattr(policy.cache.process, "run", lambda name, job, timeout: (end, None))
        with pytest.raises(GrammarTimeoutError, match=said):
            policy.cache.get(wanted)
    assert policy.cache.get(wanted).index is not None


@pytest.mark.parametrize(("pattern", "why"), [
    ("a{1,100000}", "20000 states"), ("(a{1,300}){1,300}", "20000 states"), ("((a{1,60}){1,60}){1,60}", "20000 states"),
    ("(a|b)*a(a|b){16}", "20000 states"), (".*a.{14}", "20000 states"), (".{0,2000}", "98,682,000 entries"),
])
def test_what_is_too_large_is_known_before_anything_is_built(pattern: str, why: str, make: Make) -> None:
    """The library would take half a minute and gigabytes. Only the first to ask pays for the check."""
    policy = make()
    for _ in range(3):
        with pytest.raises(GrammarTimeoutError, match=why):
            policy.cache.get(Constraint.regex(pattern))
    assert policy.cache.process.starts == 0
    assert (policy.cache.cache.misses, policy.cache.cache.hits) == (1, 2)


def test_a_child_that_was_killed_between_two_builds_is_replaced(make: Make) -> None:
    policy = make()
    process = policy.cache.process
    policy.cache.get(Constraint.regex("[0-9]{2}"))
    assert process._child is not None
    process._child.kill()
    process._child.wait()
    assert policy.cache.get(Constraint.regex("[0-9]{3}")).index is not None
    assert process.starts == 2


def test_a_child_that_cannot_be_started_condemns_no_pattern(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_args: object, **_kwargs: object) -> None:
        raise OSError("Resource temporarily unavailable")

    policy, wanted = make(), Constraint.regex("[a-c]{3}")
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", none)
        for _ in range(3):
            with pytest.raises(ConfigError, match="Resource temporarily"):
                policy.cache.get(wanted)
    assert policy.cache.get(wanted).index is not None


@pytest.mark.parametrize("error", [MemoryError("no room"), ImportError("outlines"), RuntimeError("odd")])
def test_whatever_a_library_raises_ends_one_request_only(error: Exception, make: Make,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not remembered: it is no word about the pattern."""
    policy, wanted = make(), Constraint.regex("[a-c]{3}")
    walker = GrammarWalker(policy, policy._vocabulary)

    def fails(*_args: object) -> object:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(fsm_cache, "normalise", fails)
        with pytest.raises(ConstraintError, match=str(error)):
            walker.start(wanted)
    walker.start(wanted).close()


def test_an_enumeration_of_thousands_is_served(make: Make, tokenizer: Tokenizer) -> None:
    """The library tries every token in every state; it is given those that can be taken at all."""
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(1500)]
    constraint = Constraint.json_schema({"enum": [*words, *(f"number {index:04d}" for index in range(3000))]})
    walker = GrammarWalker(make(compile_timeout=120.0), tokenizer.vocabulary)
    for word, inside in ((words[0], True), (words[-1], True), ("number 2999", True), ("number 3000", False)):
        ids = tokenizer.spell(json.dumps(word))
        with walker.start(constraint) as walk:
            assert (walk.feed_allowed(ids) == len(ids) and walk.accepting) == inside


def test_a_map_that_is_too_expensive_is_left_out(make: Make) -> None:
    compiled = make().cache.get(Constraint.regex("x[a-c]{1200}"))
    assert compiled.jumps is None
    assert compiled.index is not None
    assert make(options=StageOptions(jump_forward=False)).cache.get(Constraint.regex("abc")).jumps is None


def test_one_cache_with_one_build_a_constraint(make: Make) -> None:
    """#1357: the key is (kind, text); a regex and a choice of the same text are two."""
    cache = make(vocabulary_of(b"a", b"b", b"*")).cache
    first = cache.get(Constraint.regex("a*"))
    assert cache.get(Constraint.regex("a*")) is first
    assert cache.get(Constraint.choice(["a*"])) is not first
    assert (cache.cache.hits, cache.cache.misses, cache.process.starts) == (1, 2, 1)
    assert first.nbytes > 0


def test_what_no_token_spells_is_named_or_cut_out(make: Make) -> None:
    """hand-004 and museum row 2: no token of the real vocabulary has the bytes 04 and 1D."""
    policy = make()
    with pytest.raises(UnsatisfiableConstraintError, match="04"):
        policy.cache.get(Constraint.regex("x\x04y"))
    with GrammarWalker(policy, policy._vocabulary).start(Constraint.regex("ad\x1d|ok")) as walk:
        spelled = policy._vocabulary.token_bytes
        assert {spelled[i] for i in walk.allowed()} == {b"o", b"ok"}


def test_the_terminator_is_spelled_by_no_token(make: Make) -> None:
    """A vocabulary with every byte: the terminator's first byte is in none of the index's tokens."""
    every = vocabulary_of(*(bytes([value]) for value in range(256)), END.encode()[:2], b"a" + END.encode())
    walker = GrammarWalker(make(every), every)
    with walker.start(Constraint.regex("(ab)*")) as walk:
        assert walk.allowed() == {0, 1 + ord("a")}
    with walker.start(Constraint.regex("..")) as walk:
        assert walk.feed(1 + 0xF0) is None
        assert walk.feed(1 + 0x9F) is None
        assert walk.allowed() == set(range(1 + 0x80, 1 + 0xC0))
    with pytest.raises(ConstraintError):
        walker.start(Constraint.regex(END))


@pytest.mark.parametrize(("tokens", "pattern"), [((b"a", b"xb", b"ab"), "ab|axxb"), ((b"a", b"bb", b"xc"), "a(bb)*c")])
def test_dead_ends_by_tokens_are_refused(tokens: tuple[bytes, ...], pattern: str, make: Make) -> None:
    """Vocabularies with a byte that only longer tokens have. The second dead end is endless: the library misses it."""
    policy = make(vocabulary_of(*tokens))
    with pytest.raises(UnsupportedConstraintError, match="no end with these tokens"):
        policy.cache.get(Constraint.regex(pattern))
    policy.cache.get(Constraint.regex("a{2,3}"))


def test_masks_are_exact_on_small_vocabularies_or_refused(make: Make) -> None:
    """Against the independent byte automaton with backward search, every state that tokens reach."""
    rng = random.Random(3)
    compared = refused = 0
    vocabularies = [vocabulary_of(b"a", b"b", b"c", b"ab", b"ca", "é".encode(), b"\xc3", b"\xa9", b"0", b" "),
                    vocabulary_of(b"a", b"b", b"abc", b"00", b"\n"), vocabulary_of(b"ab", b"a", b"c", "é".encode())]
    policies = [make(vocabulary, options=StageOptions(jump_forward=False)) for vocabulary in vocabularies]
    patterns = [pattern for pattern in (random_pattern(rng) for _ in range(60)) if len(pattern) < 20]
    for pattern in patterns:
        for vocabulary, policy in zip(vocabularies, policies, strict=True):
            oracle = ByteReachability(pattern, vocabulary)
            try:
                oracle.viable(b"")
                walk = GrammarWalker(policy, vocabulary).start(Constraint.regex(pattern))
            except ValueError:  # too much for the oracle
                continue
            except ConstraintError:
                refused += 1
                continue
            with walk:
                prefix = b""
                for _ in range(4):
                    ids = walk.allowed()
                    assert ids == oracle.allowed(prefix), (pattern, prefix)
                    compared += 1
                    going_on = sorted(ids - {0})
                    if not going_on:
                        break
                    token_id = rng.choice(going_on)
                    assert walk.feed(token_id) is None
                    prefix += vocabulary.token_bytes[token_id]
    assert compared > 100
    print(f"{compared} states compared, {refused} refused")
