"""A constraint in the words of somebody else's library: it must be the same language, or be refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.ledger import NotHereError
from benchmarks.mask_engines import engine_named
from benchmarks.peer_gbnf import gbnf_of
from benchmarks.peer_transformers import _LIBRARIES, ONE_FOR_ALL, HFModel, TransformersLoop, _pattern
from benchmarks.workloads import Question
from shared_runtime.constraint import Constraint
from shared_runtime.tokenizer import Tokenizer

TAG = Constraint.structural_tag({"structures": [{"begin": "<f=a>", "schema": {"enum": ["x"]}, "end": "</f>"}],
                                 "triggers": ["<f="]})


def test_what_is_no_pattern_is_not_taken_for_one() -> None:
    for constraint in (TAG, Constraint("ebnf", source='root ::= "a"')):  # each has a source
        with pytest.raises(NotHereError, match=f"outlines is not asked for {constraint.kind}"):
            _pattern("outlines", constraint)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, of what the libraries do when they are imported
@pytest.mark.parametrize("library", ["xgrammar", "llguidance"])
def test_a_structural_tag_in_a_library_s_own_words_lets_through_what_ours_does(library: str, tiny_model: Path) -> None:
    hf = HFModel(str(tiny_model), "fp32", torch.device("cpu"))
    wrapped = _LIBRARIES[library](hf.model, hf.tokenizer)
    compiled = wrapped.compile(TAG)
    tokenizer = Tokenizer.from_folder(tiny_model)
    for text, inside in (('so <f=a>"x"</f>', True), ('so <f=a>"y', False), ("so <f=b", False)):
        processor, ids = wrapped.processor([compiled]), [0]
        allowed = []
        for token_id in tokenizer.spell(text):
            scores = processor(torch.tensor([ids]), torch.zeros(1, hf.model.config.vocab_size))
            allowed.append(bool(scores[0, token_id] == 0))
            if not allowed[-1]:
                break
            ids.append(token_id)
        assert all(allowed) is inside, text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", ["xgrammar", "llguidance", "outlines"])
def test_each_request_of_a_batch_has_its_own_constraint_where_the_library_can(library: str, tiny_model: Path) -> None:
    loop = TransformersLoop(HFModel(str(tiny_model), "fp32", torch.device("cpu")), library)
    wave = [Question(f"Say {word}.", Constraint.choice([word])) for word in ("tea", "a ship", "tea")]
    for one in wave:
        assert one.constraint is not None
        loop.prepare(one.constraint)
    if library == "outlines":
        with pytest.raises(NotHereError, match=ONE_FOR_ALL):
            loop.answer(wave, 8)
        wave = [wave[0], wave[2]]
    assert [one.text for one in loop.answer(wave, 8)] == ["tea", "a ship", "tea"][:: 2 if library == "outlines" else 1]
    with pytest.raises(NotHereError, match="every request of a batch or none"):
        loop.answer([wave[0], Question("Say anything.", None)], 8)


@pytest.mark.parametrize(("pattern", "inside", "outside"), [
    (r"[A-Z][a-z]{2,4}( x)?", ["Abc", "Abcde x"], ["ab", "Abcdef", "Abc y"]),
    (r"(ja|„nein“|\])+", ["ja", "„nein“ja]"], ["", "nein"]),
    (r'\{"a": [^"\\]*\}', ['{"a": }', '{"a": é-^}'], ['{"a": "}']),
    (r"(|ab)c{0,1}", ["", "abc", "c"], ["abcc"]),
])
def test_a_grammar_in_gbnf_has_the_language_of_its_regex(pattern: str, inside: list[str], outside: list[str],
                                                         tiny_model: Path) -> None:
    tokenizer = Tokenizer.from_folder(tiny_model)
    start = engine_named("xgrammar", tokenizer)(Constraint("ebnf", source=gbnf_of(Constraint.regex(pattern))))
    for text in [*inside, *outside]:
        walker, through = start(), True
        for token_id in [*tokenizer.spell(text), min(tokenizer.vocabulary.stop_ids)]:
            through = through and walker.mask()(token_id)
            if not through:
                break
            walker.accept(token_id)
        assert through is (text in inside), text
