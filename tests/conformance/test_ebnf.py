"""EBNF grammars: every mask is the small recogniser's, and every finished answer is in the language."""

from __future__ import annotations

import random

import pytest

from shared_runtime.constrain.using.walk import GrammarWalker
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from tests.conformance.harness import Ask, Target, Walkers, cases, each_target_with, in_language, run
from tests.conformance.walks import hold_to_oracle, random_walk
from tests.conftest import EngineFactory
from tests.oracles.ebnf_oracle import EbnfMaskOracle
from tests.oracles.random_schema import mutated

GRAMMARS = {
    "nested": 'root ::= "(" root ")" | [a-c]+',
    "sums": 'root ::= term ("+" term)*\nterm ::= [0-9]{1,2} | "(" root ")"',
    "unicode": 'root ::= ("天" | "é" | [а-я]){1,3} "!"?',
    "prefixes": 'root ::= "cat" | "catalog" | "category" | "cat" " "+',
    "empty": 'root ::= ("n" "/" "a")?',
    "escapes": 'root ::= "\\"" [^"\\\\\\n]* "\\"" | "\\t" "\\u4e2d"',
    "same": 'root ::= word " " root | word\nword ::= "ab" | "a" | "b"',
}
HANDED = {case.id: case.constraint.source for case in cases("ebnf") if case.constraint and case.expect != "error"}
BOTH = GRAMMARS | HANDED

each_ebnf_target = each_target_with("ebnf")
each_grammar = pytest.mark.parametrize("name", sorted(BOTH))


@each_ebnf_target
@each_grammar
def test_mask_equals_the_recogniser(target: Target, name: str, walkers: Walkers, tokenizer: Tokenizer) -> None:
    oracle, rng = EbnfMaskOracle(BOTH[name], tokenizer.vocabulary), random.Random(name)
    with walkers(target).start(Constraint.ebnf(BOTH[name])) as walk:
        for prefix, allowed in random_walk(walk, tokenizer.vocabulary, rng, steps=5,
                                           liked=frozenset(range(0x20, 0x100))):
            hold_to_oracle(target, allowed, oracle.allowed(prefix), prefix)


def _accepts(walker: GrammarWalker, constraint: Constraint, ids: list[int]) -> bool:
    with walker.start(constraint) as walk:
        return walk.feed_allowed(ids) == len(ids) and (walk.terminated or walk.accepting)


@each_ebnf_target
@each_grammar
def test_walks_that_may_end_are_in_the_language_and_mutated_ones_stay_out(
        target: Target, name: str, walkers: Walkers, tokenizer: Tokenizer) -> None:
    constraint, rng = Constraint.ebnf(BOTH[name]), random.Random(name)
    found: set[str] = set()
    for walked in range(30):
        if walked >= 4 and found:
            break
        with walkers(target).start(constraint) as walk:
            for text, allowed in random_walk(walk, tokenizer.vocabulary, rng, steps=10):
                if not allowed.isdisjoint(tokenizer.vocabulary.stop_ids):
                    assert in_language(constraint, text.decode()), text
                    found.add(text.decode())
    assert found
    for whole in sorted(found)[:6]:
        changed = mutated(rng, whole)
        if not in_language(constraint, changed):
            assert not _accepts(walkers(target), constraint, tokenizer.spell(changed)), changed


@each_ebnf_target
def test_finished_answers_are_in_the_language(target: Target, make_engine: EngineFactory) -> None:
    engine = make_engine(stage=target.spec.id, backend=target.backend)
    asks = [Ask("x", Constraint.ebnf(source), SamplingParams(max_new_tokens=25, temperature=1.0, seed=seed))
            for seed, source in enumerate(BOTH.values())]
    results = run(engine, asks)
    finished = 0
    for ask, result in zip(asks, results, strict=True):
        assert result.finish_reason in ("stop", "length"), result.error
        if result.finish_reason == "stop":
            finished += 1
            assert in_language(ask.constraint, result.text), (ask.constraint, result.text)
    assert finished >= 3


@each_ebnf_target
@pytest.mark.parametrize("bad", ["root ::= nobody", "root ::= (", "", "start ::= \"a\"", "root ::= \"a",
                                 "root ::= root", "root ::= \"a\" root", "root ::= \"b\" | x\nx ::= [a-c] x"])
def test_a_bad_grammar_is_refused(target: Target, bad: str, walkers: Walkers) -> None:
    with pytest.raises(ConstraintError):
        walkers(target).start(Constraint.ebnf(bad))
