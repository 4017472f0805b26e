"""Masks along a draft: the libraries' own calls equal accept, fill and roll back, bit for bit, whatever is drafted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from shared_runtime.constrain.using.draft_rows import fill_along, text_part
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary
from stages.stage5_backend_jump.base_grammar_backend import REGISTRY, BaseGrammarBackend, BaseGrammarObject
from stages.stage5_backend_jump.decoder import STAGE
from stages.stage5_backend_jump.reasoner_grammar_backend import ReasonerGrammarBackend
from tests.unit.stage5_helpers import EOS as END
from tests.unit.stage5_helpers import THINK_END, A, B, WordGrammar, allowed_in, context_over
from tests.unit.test_stage5_reasoner import reasoner

pytestmark = pytest.mark.model

SCHEMA = Constraint.json_schema({"type": "object", "properties": {"city": {"type": "string", "maxLength": 9},
                                                                  "days": {"type": "integer"}},
                                 "required": ["city", "days"], "additionalProperties": False})
GRAMMARS = [
    (SCHEMA, '{"city": "Bergen", "days": 31}'), (Constraint.regex("(calm|cautious), [0-9]{2}!?"), "cautious, 42!"),
    (Constraint.regex("世(界|间){1,3}é"), "世间界é"), (Constraint.choice(["yes", "no", "nowhere"]), "nowhere"),
    (Constraint.regex(".{0,12}"), "é🌍 \ud7ff."),
]

each_backend = pytest.mark.parametrize("name", STAGE.capabilities.backends)


@pytest.fixture(scope="module")
def tokenizer(embedded_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(embedded_folder)


@pytest.fixture(scope="module")
def backends(tokenizer: Tokenizer) -> dict[str, BaseGrammarBackend]:
    return {name: REGISTRY.create(name, context_over(tokenizer.vocabulary, tokenizer))
            for name in STAGE.capabilities.backends}


def _pieces(tokenizer: Tokenizer, text: str, rng: random.Random) -> list[int]:
    """A spelling of `text`: its own, with some tokens cut into bytes, so that borders fall inside characters."""
    ids: list[int] = []
    for token_id in tokenizer.spell(text):
        spelled = tokenizer.vocabulary.token_bytes[token_id]
        ids += [token_id] if rng.random() < 0.7 else [tokenizer.vocabulary.byte_tokens[byte] for byte in spelled]
    return ids


def _spoilt(ids: list[int], vocabulary: Vocabulary, rng: random.Random) -> list[int]:
    """A draft of them: cut, gone on with, or with a token exchanged for any id at all."""
    draft = ids[:rng.randint(0, len(ids))]
    strange = [*vocabulary.stop_ids, 0, vocabulary.width, -1, 1 << 40, rng.randrange(17, len(vocabulary))]
    if draft and rng.random() < 0.5:
        draft[rng.randrange(len(draft))] = rng.choice(strange)
    return draft + [rng.choice(strange)] * rng.randint(0, 2)


@each_backend
@pytest.mark.parametrize(("constraint", "text"), GRAMMARS, ids=[text for _, text in GRAMMARS])
def test_rows_along_a_draft_equal_accept_fill_and_roll_back(
        name: str, constraint: Constraint, text: str, backends: dict[str, BaseGrammarBackend],
        tokenizer: Tokenizer) -> None:
    rng = random.Random(f"{name} {text}")
    vocabulary = tokenizer.vocabulary
    compiled = backends[name].init_value(constraint).grammar
    longest = 0
    for _ in range(25):
        grammar = compiled.copy()
        ids = _pieces(tokenizer, text, rng)
        start = _follow(grammar, ids[:rng.randint(0, len(ids))])
        draft = _spoilt(ids[start:], vocabulary, rng)
        before = allowed_in(grammar)
        rows = len(draft) + 3
        oracle, mask = (grammar.allocate_vocab_mask(vocabulary.width, rows, torch.device("cpu")) for _ in range(2))
        reached = fill_along(grammar, oracle, 1, draft, vocabulary)
        assert grammar.fill_vocab_mask_drafted(mask, 1, draft) == reached
        assert torch.equal(mask, oracle)
        assert torch.all(mask[0] == -1), "another row"
        assert torch.all(mask[1 + reached:] == -1), "a row behind a refused draft held something"
        assert (grammar.accepted, allowed_in(grammar)) == (start, before), "the grammar has moved"
        longest = max(longest, reached)
    assert longest > 2


def _follow(grammar: BaseGrammarObject, ids: list[int]) -> int:
    for count, token_id in enumerate(ids):
        try:
            grammar.accept_token(token_id)
        except ConstraintError:  # a library that takes one spelling only
            return count
    return len(ids)


@each_backend
def test_no_row_lies_behind_the_end_of_the_text(name: str, backends: dict[str, BaseGrammarBackend],
                                                tokenizer: Tokenizer) -> None:
    vocabulary = tokenizer.vocabulary
    stop = min(vocabulary.stop_ids)
    grammar = backends[name].init_value(Constraint.choice(["yes"])).grammar
    yes = tokenizer.spell("yes")
    mask = grammar.allocate_vocab_mask(vocabulary.width, 5, torch.device("cpu"))
    assert grammar.fill_vocab_mask_drafted(mask, 0, [*yes, stop, *yes]) == len(yes) + 1
    assert torch.all(mask[len(yes) + 1:] == -1)
    words = mask[len(yes)].tolist()
    assert [i for i in range(vocabulary.width) if words[i // 32] >> i % 32 & 1] == sorted(vocabulary.stop_ids)


def test_a_draft_may_end_the_thinking_and_use_up_its_budget() -> None:
    """The mask before the end of thinking, the one behind it, and the one that the budget leaves."""
    grammar = reasoner([A, B], 1)
    assert _rows(grammar, [THINK_END, A, B, END]) == [set(range(6)) - {END}, {A}, {B}, {END}]
    assert _rows(grammar, [B, B, THINK_END]) == [set(range(6)) - {END}, {THINK_END}], "the budget is one token"
    assert _rows(grammar, [B, THINK_END, A]) == [set(range(6)) - {END}, {THINK_END}, {A}, {B}]
    assert _rows(grammar, [END, A]) == [set(range(6)) - {END}], "an end while thinking is no end"
    assert (grammar.thinking, grammar.think_tokens, grammar.accepted) == (True, 0, 0)


def test_behind_the_end_of_thinking_the_inner_grammar_fills(tokenizer: Tokenizer,
                                                            backends: dict[str, BaseGrammarBackend]) -> None:
    wrapper = ReasonerGrammarBackend(context_over(tokenizer.vocabulary, tokenizer), backends["xgrammar"], 5)
    grammar = wrapper.init_value(Constraint.choice(["yes"])).grammar
    grammar.maybe_init_reasoning(True)
    assert grammar.forced_bytes() == b"", "nothing is forced while thinking"
    grammar.accept_token(5)
    assert grammar.forced_bytes() == b"yes"
    yes = tokenizer.spell("yes")
    mask = grammar.allocate_vocab_mask(tokenizer.vocabulary.width, 4, torch.device("cpu"))
    assert grammar.fill_vocab_mask_drafted(mask, 0, yes) == len(yes) + 1


def test_what_a_library_may_see_of_a_draft() -> None:
    vocabulary = reasoner([A]).vocabulary
    assert text_part([A, B, 3], vocabulary) == [A, B, 3]
    for bad in (END, THINK_END, -1, 6, 8, 1 << 40):
        assert text_part([A, bad, B], vocabulary) == [A]


def _rows(grammar: BaseGrammarObject, draft: list[int]) -> list[set[int]]:
    width = grammar.vocabulary.width
    mask = grammar.allocate_vocab_mask(width, len(draft) + 1, torch.device("cpu"))
    reached = grammar.fill_vocab_mask_drafted(mask, 0, draft)
    return [{i for i in range(width) if int(mask[row][0]) >> i & 1} for row in range(reached)]


def test_an_inner_grammar_that_fails_leaves_the_wrapper_where_it_was() -> None:
    class Failing(WordGrammar):
        def fill_vocab_mask(self, mask: torch.Tensor, row: int) -> None:
            if self.at == 1:
                raise RuntimeError("the library is out of order")
            super().fill_vocab_mask(mask, row)

    grammar = Failing(reasoner([A]).vocabulary, [A, B, A])
    mask = grammar.allocate_vocab_mask(8, 4, torch.device("cpu"))
    with pytest.raises(RuntimeError, match="out of order"):
        grammar.fill_vocab_mask_drafted(mask, 0, [A, B])
    assert (grammar.at, grammar.accepted) == (0, 0)
