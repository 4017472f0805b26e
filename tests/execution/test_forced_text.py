"""Forced text as tokens: spelled as the tokenizer does in this place, and held back where a longer token may come."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.execution.forced_text import ForcedText
from shared_runtime.tokenizer import Tokenizer
from stages.stage5_backend_jump.base_grammar_backend import REGISTRY, BaseGrammarBackend, BaseGrammarObject
from stages.stage5_backend_jump.decoder import STAGE
from tests.unit.stage5_helpers import allowed_in, context_over

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def tokenizer(embedded_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(embedded_folder)


@pytest.fixture(scope="module")
def forced_text(tokenizer: Tokenizer) -> ForcedText:
    return ForcedText(tokenizer)


@pytest.fixture(scope="module")
def backends(tokenizer: Tokenizer) -> dict[str, BaseGrammarBackend]:
    from shared_runtime.policy import StageOptions

    options = StageOptions(backend_jump="force")  # or the outlines backend builds no map
    return {name: REGISTRY.create(name, context_over(tokenizer.vocabulary, tokenizer, options=options))
            for name in STAGE.capabilities.backends}


def test_in_its_place_a_text_is_spelled_as_the_whole_would_be(forced_text: ForcedText, tokenizer: Tokenizer) -> None:
    text = '{"city": "New York", "since": 1624, "mayor\'s name": "été 世界 🌍"}\n\n\tThe end.'
    ids = tokenizer.spell(text)
    for count in range(len(ids)):
        rest = tokenizer.vocabulary.decode(ids[count:])
        assert list(forced_text.spell(ids[:count], rest)) == ids[count:]


def test_what_stands_is_never_touched_however_it_is_spelled(forced_text: ForcedText, tokenizer: Tokenizer) -> None:
    """The seam lies anywhere, also inside a character, behind tokens that no tokenizer would have written so."""
    rng = random.Random(5)
    vocabulary = tokenizer.vocabulary
    raw = 'a{"capitän": "世界 é", "日本🌍": [10, 2]}'.encode()
    for _ in range(200):
        seam = rng.randrange(len(raw))
        before = [vocabulary.byte_tokens[byte] for byte in raw[:seam]]
        ids = forced_text.spell(before, raw[seam:])
        assert vocabulary.decode(list(ids)) == raw[seam:]
        if 0x80 <= raw[seam] < 0xC0:
            assert all(len(vocabulary.token_bytes[token_id]) == 1 for token_id in ids[:1])


@pytest.mark.parametrize(("forced", "whole"), [
    (b"ab\xe4\xb8", b"ab"), (b"ab\xf0\x9f\x8c", b"ab"), (b"ab\xc3", b"ab"), (b"\xe4", b""), (b"", b""),
    ("ab世".encode(), "ab世".encode()),
])
def test_a_character_that_is_only_begun_is_left_out(forced: bytes, whole: bytes, forced_text: ForcedText,
                                                    tokenizer: Tokenizer) -> None:
    assert tokenizer.vocabulary.decode(list(forced_text.spell([], forced))) == whole
    half = [tokenizer.vocabulary.byte_tokens[byte] for byte in "世".encode()[:1]]
    assert forced_text.spell(half, "世".encode()[1:2]) == (), "still the same character"


def test_what_no_token_spells_is_not_written(forced_text: ForcedText) -> None:
    assert forced_text.spell([], b"a\x04b") == ()
    assert forced_text.spell([], b"a\xffb") == ()


def test_a_control_token_ends_the_text_before(forced_text: ForcedText, tokenizer: Tokenizer) -> None:
    control = min(tokenizer.vocabulary.stop_ids)
    behind = [*tokenizer.spell("hel"), control]
    assert list(forced_text.spell(behind, b"lo world")) == tokenizer.spell("lo world")


CHOICES = [
    # One forced byte or word, where a longer token may come: everything waits.
    (("calm", "cautious"), "", ""), (("excellent", "exciting"), "", ""), (("recommend", "reconsider"), "", ""),
    # The forced text ends with a token that no allowed one begins with.
    (('the answer is: "x"', 'the answer is: "y"'), "", 'the answer is: "'),
    # Behind a first choice the rest is forced, to the end.
    (("New York", "New Delhi"), "", "New"), (("no", "yes, of course"), "yes", ", of course"),
]


@pytest.mark.parametrize("name", STAGE.capabilities.backends)
@pytest.mark.parametrize(("choices", "typed", "written"), CHOICES, ids=[choices[0] for choices, _, _ in CHOICES])
def test_what_could_become_part_of_a_longer_token_waits(
        name: str, choices: tuple[str, ...], typed: str, written: str, forced_text: ForcedText, tokenizer: Tokenizer,
        backends: dict[str, BaseGrammarBackend]) -> None:
    grammar = backends[name].init_value(Constraint.choice(list(choices))).grammar
    before = tokenizer.spell(typed)
    for token_id in before:
        grammar.accept_token(token_id)
    ids = forced_text.spell(before, grammar.forced_bytes())
    expected = _naive(tokenizer, grammar, ids)
    count = forced_text.write(grammar, ids, len(ids))
    assert count == expected
    assert tokenizer.decode(ids[:count]) == written
    assert grammar.accepted == len(before) + count


def _naive(tokenizer: Tokenizer, grammar: BaseGrammarObject, ids: tuple[int, ...]) -> int:
    """How many tokens may be written: by trying every token of the vocabulary against the rest of the text."""
    spelled = tokenizer.vocabulary.token_bytes
    for count in range(len(ids)):
        rest = tokenizer.vocabulary.decode(list(ids[count:]))
        for token_id in ids[:count]:
            grammar.accept_token(token_id)
        longer = [token_id for token_id in allowed_in(grammar)
                  if len(spelled[token_id]) > len(rest) and spelled[token_id].startswith(rest)]
        grammar.rollback(count)
        if longer:
            return count
    return len(ids)


@pytest.mark.parametrize("name", STAGE.capabilities.backends)
def test_no_more_is_written_than_there_is_room_for(name: str, forced_text: ForcedText, tokenizer: Tokenizer,
                                                   backends: dict[str, BaseGrammarBackend]) -> None:
    compiled = backends[name].init_value(Constraint.choice(["a rather long and boring text"])).grammar
    ids = forced_text.spell((), compiled.forced_bytes())
    assert list(ids) == tokenizer.spell("a rather long and boring text")
    for most in range(len(ids) + 2):
        grammar = compiled.copy()
        assert forced_text.write(grammar, ids, most) == grammar.accepted == min(most, len(ids))


FORCED = [("abc", "", "abc"), ("abc", "abc", ""), ("a(bc)?", "a", ""), ("a(bc)?d", "a", ""), ("ab+c", "ab", ""),
          ("[0-9]{2}abc", "1", ""), ("[0-9]{2}abc", "12", "abc"), ("xéy", "x", "éy"), ("(calm|cautious)", "", "ca"),
          ("[a-z]{2}", "", ""), ("x(yz)*", "x", ""), ("x(yz)*", "xy", "z"), ("\"(yes|no)\"", '"y', 'es"')]


@pytest.mark.parametrize("name", STAGE.capabilities.backends)
@pytest.mark.parametrize(("pattern", "typed", "forced"), FORCED)
def test_a_backend_names_the_forced_text_and_no_more(name: str, pattern: str, typed: str, forced: str,
                                                     tokenizer: Tokenizer,
                                                     backends: dict[str, BaseGrammarBackend]) -> None:
    """Stopping is a way on, too: where the text may end, nothing is forced."""
    grammar = backends[name].init_value(Constraint.regex(pattern)).grammar
    for byte in typed.encode():
        grammar.accept_token(tokenizer.vocabulary.byte_tokens[byte])
    assert grammar.forced_bytes() == forced.encode()
    before = grammar.accepted
    assert grammar.forced_bytes() == forced.encode(), "asking changes nothing"
    grammar.rollback(before)
    assert grammar.accepted == 0


@pytest.mark.parametrize("name", STAGE.capabilities.backends)
def test_forced_bytes_may_begin_inside_a_character(name: str, tokenizer: Tokenizer,
                                                   backends: dict[str, BaseGrammarBackend]) -> None:
    grammar = backends[name].init_value(Constraint.regex("[世界]!")).grammar
    raw = "界!".encode()
    grammar.accept_token(tokenizer.vocabulary.byte_tokens[raw[0]])
    for byte in raw[1:2]:
        grammar.accept_token(tokenizer.vocabulary.byte_tokens[byte])
    assert raw[2:].startswith(grammar.forced_bytes())
    if name != "xgrammar":  # it names tokens there, and keeps the last of them to itself
        assert grammar.forced_bytes() == raw[2:]
