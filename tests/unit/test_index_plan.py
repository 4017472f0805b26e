"""What an index will need is known before it is built: its tokens exactly, its size from above."""

from __future__ import annotations

import random

import numpy as np
import pytest

from shared_runtime.constrain.compiling.compile_budget import Budget
from shared_runtime.constrain.libraries import index_plan
from shared_runtime.constrain.libraries.index_plan import IndexPlanner
from shared_runtime.constrain.regex.byte_automaton import DEAD
from shared_runtime.constrain.regex.regex_dialect import normalise
from shared_runtime.errors import GrammarTimeoutError, UnsatisfiableConstraintError
from shared_runtime.grammar_limits import GrammarLimits
from tests.oracles.random_regex import random_pattern
from tests.unit.stage1_helpers import vocabulary_of

TOKENS = vocabulary_of(b"a", b"b", b"c", b"ab", b"abc", b"cab", b"0", b"00", "é".encode(), b"\xc3", b"\xa9b", b" ",
                       b"xyz")


def test_the_tokens_that_are_needed_are_those_some_state_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_plan, "_MANY_TRIALS", 0)
    monkeypatch.setattr(index_plan, "_FEW_BYTES", 257)
    planner, rng, planned = IndexPlanner(TOKENS), random.Random(11), 0
    for _ in range(150):
        try:
            plan = planner.plan(normalise(random_pattern(rng)).tree, Budget(GrammarLimits()))
        except (UnsatisfiableConstraintError, GrammarTimeoutError):
            continue
        assert plan.needed is not None
        states = range(len(plan.automaton.table))
        taken = [[bool(text) and plan.automaton.walk(state, text) != DEAD for text in TOKENS.token_bytes]
                 for state in states]
        assert plan.needed[:len(TOKENS)].tolist() == np.any(taken, axis=0).tolist()
        assert plan.pairs >= np.sum(taken)
        planned += 1
    assert planned > 100


def test_all_tokens_stay_where_nearly_all_can_be_taken_or_few_trials_are_made() -> None:
    planner = IndexPlanner(TOKENS)
    assert planner.plan(normalise("ab|cab").tree, Budget(GrammarLimits())).needed is None
    assert planner.plan(normalise(".{0,20}").tree, Budget(GrammarLimits())).needed is None


@pytest.mark.parametrize(("pattern", "characters"), [
    ("abc", 3), ("[a-c]{4}", 4), ("(ab){2,5}", 10), ("(ab|c)+", 6), ("((a{3}){3}){3}", 27), ("", 0)])
def test_characters_are_counted_with_counts_written_out(pattern: str, characters: int) -> None:
    assert IndexPlanner(TOKENS).plan(normalise(pattern).tree, Budget(GrammarLimits())).characters == characters


def test_counts_in_counts_are_refused_by_their_product() -> None:
    for pattern in ("(a{1,300}){1,300}", "((((a{9}){9}){9}){9}){9}"):
        with pytest.raises(GrammarTimeoutError, match="20000 states"):
            IndexPlanner(TOKENS).plan(normalise(pattern).tree, Budget(GrammarLimits()))


def test_a_long_list_is_judged_by_its_states_and_not_by_its_characters() -> None:
    """Many ways may lead into one state; only counts multiply what is not written."""
    tree = normalise("|".join(f"{head}{'b' * 40}{head % 7}" for head in range(100, 700))).tree
    tokens = vocabulary_of(*(bytes([byte]) for byte in b"0123456789b"))
    plan = IndexPlanner(tokens).plan(tree, Budget(GrammarLimits(max_states=26_000)))
    assert plan.characters > 26_000 > len(plan.automaton.table)
