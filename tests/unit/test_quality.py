"""Quality is a count and a sum: held against counting by hand and against a pass that samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared_runtime.errors import RequestError
from shared_runtime.quality import Likelihood, Spelling, log_likelihood, spelling_of
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from tests.conftest import EngineFactory


@pytest.fixture(scope="module")
def tokenizer(embedded_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(embedded_folder)


@pytest.mark.parametrize("text", ["", "one two", '{"city": "Zürich", "days": 12}', "世界 🌍"])
def test_a_text_in_its_own_encoding_is_canonical(text: str, tokenizer: Tokenizer) -> None:
    ids = tokenizer.spell(text)
    stop = min(tokenizer.vocabulary.stop_ids)
    assert spelling_of(tokenizer, [*ids, stop]) == Spelling(len(ids), len(ids), len(ids))
    assert spelling_of(tokenizer, ids).canonical_share == 1.0


def test_a_word_in_pieces_is_not(tokenizer: Tokenizer) -> None:
    """`the captain` is two tokens; here the second is written in its letters."""
    the, captain = tokenizer.spell("the captain")
    letters = [tokenizer.vocabulary.byte_tokens[byte] for byte in tokenizer.vocabulary.token_bytes[captain]]
    found = spelling_of(tokenizer, [the, *letters])
    assert found == Spelling(tokens=1 + len(letters), encoded=2, shared=1)
    assert found.canonical_share == 1 / (1 + len(letters))
    assert (found + found) == Spelling(2 + 2 * len(letters), 4, 2)


def test_an_answer_that_ends_inside_a_character_is_judged_up_to_it(tokenizer: Tokenizer) -> None:
    half = [tokenizer.vocabulary.byte_tokens[byte] for byte in "é".encode()[:1]]
    ids = tokenizer.spell("one two")
    assert spelling_of(tokenizer, [*ids, *half]) == spelling_of(tokenizer, ids)
    with pytest.raises(RequestError, match="byte 7"):
        spelling_of(tokenizer, [*ids, *half, *ids])


def test_the_likelihood_is_that_of_the_passes_that_sampled(make_engine: EngineFactory) -> None:
    engine = make_engine(exact=True)
    result = engine.generate_one("Once upon a time", sampling=SamplingParams(
        max_new_tokens=12, temperature=1.0, seed=4, ignore_eos=True, logprobs=True))
    found = log_likelihood(engine, result.prompt_ids, result.token_ids)
    assert found.logprob == pytest.approx(sum(entry.logprob for entry in result.logprobs), abs=1e-9)
    assert (found.tokens, found.bytes) == (12, len(engine.tokenizer.vocabulary.decode(result.token_ids)))
    assert found.nll_per_token == -found.logprob / 12
    assert found.logprob_per_byte == found.logprob / found.bytes < 0
    nothing = log_likelihood(engine, result.prompt_ids, [])
    assert (nothing, nothing.nll_per_token, nothing.logprob_per_byte) == (Likelihood(0, 0, 0), 0.0, 0.0)
    assert nothing + found == found


def test_other_requests_go_on_meanwhile(make_engine: EngineFactory) -> None:
    engine = make_engine(exact=True)
    alone = engine.generate_one("one two", sampling=SamplingParams(max_new_tokens=20, ignore_eos=True))
    name, = engine.add_request("one two", sampling=SamplingParams(max_new_tokens=20, ignore_eos=True))
    engine.step()
    log_likelihood(engine, alone.prompt_ids, alone.token_ids)
    while engine.has_work:
        engine.step()
    result = next(event.result for event in engine.take_events([name]) if event.result is not None)
    assert result.token_ids == alone.token_ids


def test_without_a_prompt_there_is_nothing_to_score_behind(make_engine: EngineFactory) -> None:
    with pytest.raises(RequestError, match="behind a prompt"):
        log_likelihood(make_engine(), [], [17])
