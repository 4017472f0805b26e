"""The jump map and the retokenizer: what is forced is what every text goes on with, and a prompt is never touched."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_runtime.tokenizer import Tokenizer
from stages.stage2_jump_forward.jump_forward import JumpForwardMap, retokenize
from tests.oracles.random_regex import random_pattern
from tests.unit.stage1_helpers import byte_automaton

LETTERS = ("a", "b", "é", "ø", "中")  # é and ø share their first byte
TEXTS = tuple("".join(text) for length in range(5) for text in itertools.product(LETTERS, repeat=length))

atoms = st.sampled_from(["a", "b", "é", "ø", "中", "[ab]", "[éø]", "ab", "中é", "(é|ø)b", "(ab|aø)"])
# At most four characters a text, so that TEXTS holds every text of the language.
finite_patterns = st.one_of(
    st.lists(st.sampled_from(["a", "b", "é", "ø", "中", "[ab]", "[éø]", "a?", "(é|中)?"]), min_size=1,
             max_size=4).map("".join),
    st.lists(st.lists(atoms, min_size=1, max_size=2).map("".join), min_size=1, max_size=3).map("|".join),
    st.builds(lambda head, tail: f"{head}({tail})?", atoms, atoms),
)


def forced_after(pattern: str, text: str | bytes) -> bytes:
    spelled = text.encode() if isinstance(text, str) else text
    dfa = byte_automaton(pattern)
    return JumpForwardMap.of(dfa).forced(dfa.walk(0, spelled))


def common_start(texts: list[bytes]) -> bytes:
    return next(texts[0][:end] for end in range(len(texts[0]), -1, -1)
                if all(text.startswith(texts[0][:end]) for text in texts))


@settings(max_examples=300, deadline=None)
@given(finite_patterns)
def test_forced_is_the_longest_text_that_all_texts_go_on_with(pattern: str) -> None:
    """Museum rows 12, 13 and 15, by brute force, from every prefix, also one that ends inside a character."""
    language = [text.encode() for text in TEXTS if re.fullmatch(pattern, text)]
    dfa = byte_automaton(pattern)
    jumps = JumpForwardMap.of(dfa)
    for prefix in {text[:end] for text in language for end in range(len(text) + 1)}:
        ahead = [text[len(prefix):] for text in language if text.startswith(prefix)]
        assert jumps.forced(dfa.walk(0, prefix)) == common_start(ahead), prefix


def test_forced_text_begins_every_text_of_endless_languages_too() -> None:
    rng = random.Random(20240205)
    checked = 0
    for pattern in [random_pattern(rng) for _ in range(120)]:
        dfa = byte_automaton(pattern)
        jumps = JumpForwardMap.of(dfa)
        for text in (text for text in TEXTS[:200] if re.fullmatch(pattern, text, re.ASCII)):
            spelled = text.encode()
            for end in range(len(spelled) + 1):
                assert spelled[end:].startswith(jumps.forced(dfa.walk(0, spelled[:end]))), (pattern, text, end)
                checked += 1
    assert checked > 100


@pytest.mark.parametrize(("pattern", "text", "forced"), [
    (r"[-+]?[0-9]+[ ]*", "7", b""),                       # row 12: upstream's scheduler spun for ever
    ("a*", "", b""),
    ("ab(cde)?", "ab", b""),                              # row 13: upstream forced the tail
    ("ab(cde)?", "", b"ab"),
    ("ab(cde)?", "abc", b"de"),
    (".*", "", b""),                                      # row 14: KeyError, and the request was never answered
    ("[^\"]*", "", b""),
    ('"[^"]*"', "", b'"'),                                # row 15: upstream forced the empty string
    ("é+x", "", "é".encode()),                            # row 15: AssertionError
    ("(霍格沃茨|霍比特人)", "", "霍".encode() + b"\xe6"),   # ends inside a character
    ("(霍格沃茨|霍比特人)", "霍".encode() + b"\xe6\xa0", b"\xbc" + "沃茨".encode()),  # row 16
    ("abc", "abc", b""),
])
def test_what_upstream_got_wrong(pattern: str, text: str | bytes, forced: bytes) -> None:
    assert forced_after(pattern, text) == forced


@pytest.mark.parametrize("pattern", [r"x|a(bc)*[^\s\S]", r"(a|)*", r"", r".{0,300}", r"(\w+ )*", r"[^é]+é"])
def test_every_automaton_has_a_map_and_following_it_ends(pattern: str) -> None:
    """Museum rows 12 and 14: also where a circle leads nowhere."""
    dfa = byte_automaton(pattern)
    jumps = JumpForwardMap.of(dfa)
    for state in range(len(dfa.table)):
        assert len(jumps.forced(state)) <= len(dfa.table)
        assert not dfa.accepting[state] or jumps.forced(state) == b""
    assert jumps.nbytes >= len(jumps.edges)


@pytest.fixture(scope="module")
def tokenizer(embedded_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(embedded_folder)


@pytest.mark.model
@pytest.mark.parametrize(("prompt", "answer"), [
    ("Invent a ship:\n", '{\n  "ship": "Anna",\n  "rig": "sloop"'), ("Name:", " Anna and Bob"), ("x", ""),
    ("", "the year 2024"), ("世界", "霍格沃茨"), ("ends in a newline\n", "x"),
])
def test_the_new_ids_are_those_of_prompt_and_answer_together(tokenizer: Tokenizer, prompt: str, answer: str) -> None:
    """hand-051's rule: ids after a jump equal encode(prompt + output)."""
    prompt_ids = tokenizer.encode(prompt)
    ids = retokenize(tokenizer, prompt_ids, answer)
    assert ids is not None
    assert prompt_ids + ids == tokenizer.encode(prompt + answer)


@pytest.mark.model
@pytest.mark.parametrize(("prompt", "answer"), [("a ", "b"), ("Name: ", "Anna"), ("in", "side"), ("x\n\n", "y")])
def test_a_prompt_that_would_grow_into_the_answer_is_not_touched(tokenizer: Tokenizer, prompt: str,
                                                                 answer: str) -> None:
    """Museum row 17: upstream once took the first ids as the prompt's, whatever they were."""
    assert tokenizer.encode(prompt + answer)[:len(tokenizer.encode(prompt))] != tokenizer.encode(prompt)
    assert retokenize(tokenizer, tokenizer.encode(prompt), answer) is None


@pytest.mark.model
def test_only_the_prompt_behind_its_last_control_token_counts(tokenizer: Tokenizer) -> None:
    chat = tokenizer.apply_chat([{"role": "user", "content": "a deepprivileged <|im_end|> one"}])
    ids = retokenize(tokenizer, chat, '{"a": 1}')
    assert ids == tokenizer.encode("assistant\n" + '{"a": 1}')[len(tokenizer.encode("assistant\n")):]
    ends_in_control = [*tokenizer.encode("a "), tokenizer.encode("<|im_start|>")[0]]
    assert retokenize(tokenizer, ends_in_control, "b") == tokenizer.spell("b")


@pytest.mark.model
def test_a_prompt_that_is_not_its_own_encoding_says_nothing_about_the_seam(tokenizer: Tokenizer) -> None:
    """Ids from elsewhere: spelled in pieces, or ending inside a character."""
    single = tokenizer.vocabulary.byte_tokens
    in_pieces = [single[byte] for byte in b"ship "]
    assert in_pieces != tokenizer.encode("ship ")
    half = [single["é".encode()[0]]]
    for prompt_ids in (in_pieces, half):
        assert retokenize(tokenizer, prompt_ids, "deep water") == tokenizer.spell("deep water")


@pytest.mark.model
def test_control_tokens_never_come_out_of_their_printed_names(tokenizer: Tokenizer) -> None:
    ids = retokenize(tokenizer, tokenizer.encode("x\n"), "<|im_end|><|endoftext|> and <file_sep>")
    assert ids is not None
    assert set(ids).isdisjoint(tokenizer.vocabulary.control_ids)
    assert tokenizer.decode(ids) == "<|im_end|><|endoftext|> and <file_sep>"


@pytest.mark.model
@settings(max_examples=200, deadline=None)
@given(prompt=st.lists(st.integers(0, 49_151), max_size=6), text=st.text(max_size=12))
def test_retokenize_never_raises_and_keeps_every_byte(tokenizer: Tokenizer, prompt: list[int], text: str) -> None:
    """Museum row 19: upstream's raised where encoding gave nothing, or less than the prompt."""
    before = list(prompt)
    ids = retokenize(tokenizer, prompt, text)
    assert prompt == before
    if ids is not None:
        assert tokenizer.vocabulary.decode(ids) == text.encode()


@pytest.mark.model
def test_a_text_that_no_tokens_spell_is_no_jump(tokenizer: Tokenizer) -> None:
    assert 0x1D not in tokenizer.vocabulary.spellable_bytes
    assert retokenize(tokenizer, tokenizer.encode("x"), "a\x1db") is None
