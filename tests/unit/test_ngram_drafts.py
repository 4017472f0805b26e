"""Prompt lookup: the guess is what stood there last, its length follows its luck, and tokens never change."""

from __future__ import annotations

import random

import pytest

from shared_runtime.execution.draft_source import DraftBook, DraftLength
from shared_runtime.execution.ngram import NGramDrafts
from shared_runtime.metrics import RequestMetrics
from shared_runtime.policy import Proposal
from shared_runtime.request import Request
from shared_runtime.sampling_params import SamplingParams
from tests.conftest import EngineFactory


def _request(prompt: list[int], output: list[int] | None = None) -> Request:
    return Request(rid="r", prompt_ids=prompt, prompt="", sampling=SamplingParams(), seed=0,
                   output_ids=list(output or []), metrics=RequestMetrics(arrival=0.0))


def _naive(ids: list[int], room: int, longest: int = 4, shortest: int = 2) -> tuple[int, ...]:
    for size in range(longest, shortest - 1, -1):
        for end in range(len(ids) - 1, size - 1, -1):
            if ids[end - size:end] == ids[-size:]:
                return tuple(ids[end:end + room])
    return ()


def test_the_guess_is_that_of_a_naive_search() -> None:
    rng = random.Random(7)
    for _ in range(50):
        source, req = NGramDrafts(), _request([rng.randrange(4) for _ in range(rng.randint(1, 20))])
        for _ in range(15):
            req.output_ids.append(rng.randrange(4))
            assert source.draft(req, 3) == _naive(req.all_ids, 3)


def test_a_rewritten_text_is_read_again() -> None:
    source, req = NGramDrafts(), _request([1, 2, 3, 4], [9, 1, 2])
    assert source.draft(req, 2) == (3, 4)
    req.output_ids = [7, 7, 7, 5, 3, 4]
    assert source.draft(req, 2) == _naive(req.all_ids, 2) == (7, 7)


def test_room_is_kept_and_nothing_is_guessed_from_nothing() -> None:
    source = NGramDrafts()
    assert source.draft(_request([1]), 4) == ()
    req = _request([1, 2, 3, 4, 5, 6, 1, 2])
    assert source.draft(req, 0) == ()
    assert NGramDrafts().draft(req, 3) == (3, 4, 5)
    with pytest.raises(ValueError, match="n-grams"):
        NGramDrafts(longest=2, shortest=3)


def test_a_source_that_is_always_wrong_becomes_cheap_and_one_that_is_right_stays_long() -> None:
    wrong, right = DraftLength(), DraftLength()
    offered = 0
    for _ in range(80):
        limit = wrong.allowed()
        offered += limit
        wrong.learn(limit, 0)
        limit = right.allowed()
        right.learn(limit, limit)
    assert offered <= wrong.longest + 80 // DraftLength.PATIENCE
    assert right.allowed() == right.longest


def test_a_token_that_is_taken_pays_for_several_that_are_refused() -> None:
    length = DraftLength(longest=16)
    length.learn(16, 0)
    assert [length.allowed() for _ in range(DraftLength.PATIENCE)].count(1) == 1, "it may try again"
    length.learn(1, 1)
    assert length.allowed() == DraftLength.WORTH
    for _ in range(50):  # one in `WORTH`: neither better nor worse than no draft at all
        length.learn(1 + DraftLength.WORTH, 1)
    assert length.allowed() == DraftLength.WORTH


def test_what_a_draft_came_to_counts_for_the_source_that_guessed_it() -> None:
    book, req = DraftBook({"first": DraftLength(longest=4)}), _request([1, 2, 3])

    def offer(taken: int, memory: int = 99) -> tuple[int, int]:
        """Offer all that both sources may; of that, `memory` tokens are verified, and `taken` of them come true."""
        book.open(req)
        lengths = (len(book.take(req, "first", [7] * 99, 99)), len(book.take(req, "second", [8] * 99, 99)))
        req.metrics.drafted_tokens += min(sum(lengths), memory)
        req.metrics.accepted_tokens += taken
        return lengths

    assert offer(taken=4) == (4, 16), "the second was wrong at once"
    assert offer(taken=0) == (4, 0), "without credit it waits; now the first is wrong"
    assert offer(taken=0) == (0, 0)
    book.forget(req)
    req.metrics.drafted_tokens = req.metrics.accepted_tokens = 0
    assert offer(taken=0) == (4, 16)
    assert offer(taken=0, memory=6) == (0, 16), "behind a refused draft nothing is learnt of the second"
    assert offer(taken=0) == (0, 10), "only what was verified was wrong"


def test_no_more_than_the_room_is_taken_and_an_empty_draft_costs_nothing() -> None:
    book, req = DraftBook(), _request([1, 2, 3])
    for _ in range(20):
        book.open(req)
        assert book.take(req, "ngram", (), 5) == ()
    assert book.take(req, "ngram", (4, 5, 6), 0) == ()
    assert book.take(req, "ngram", (4, 5, 6), 2) == (4, 5)


def test_tokens_that_stand_ahead_are_the_end_of_the_text() -> None:
    source, req = NGramDrafts(), _request([1, 2, 3, 4, 5, 9])
    assert source.draft(req, 2) == ()
    assert source.draft(req, 2, ahead=(1, 2)) == (3, 4)
    assert source.draft(req, 2, ahead=(3,)) == ()


def test_a_repeating_answer_needs_fewer_passes_and_has_the_same_tokens(make_engine: EngineFactory) -> None:
    params = SamplingParams(max_new_tokens=60, ignore_eos=True, logprobs=True)
    prompt = "one two three four five one two three four five one two"
    plain = make_engine(exact=True).generate_one(prompt, sampling=params)
    engine = make_engine(exact=True)
    source = NGramDrafts()
    engine.parts.policy.propose = lambda req, room: Proposal(  # type: ignore[method-assign]  # stands in for a stage
        draft=source.draft(req, room), source=source.name)
    drafted = engine.generate_one(prompt, sampling=params)
    assert (drafted.token_ids, drafted.logprobs) == (plain.token_ids, plain.logprobs)
    assert drafted.metrics.forward_passes <= plain.metrics.forward_passes
    assert drafted.counts["drafted"] > 0
    assert drafted.metrics.forward_passes == plain.metrics.forward_passes - drafted.counts["accepted"] + int(
        drafted.origins[-1] == "draft_accepted")
