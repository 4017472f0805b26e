"""The detokenizer: whole characters only, chunks that add up, stop strings never leaked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_runtime.detokenizer import IncrementalDetokenizer
from shared_runtime.errors import EngineStateError
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary

CONTROL = 256
HAND_053 = ("A 世a😀b 界", "👨‍👩‍👧 ok")
TEXTS = (*HAND_053, "plain ascii", "e\u0301 and n\u0303", "日本語のテキスト", "🏳️‍🌈🇨🇳",
         "\u00a0\u2028tab\t", "")


def vocabulary_of(pieces: Sequence[bytes]) -> Vocabulary:
    """Ids 0..255 are the bytes (as in a byte-fallback vocabulary), 256 is a control token, then `pieces`."""
    spelled = [bytes([value]) for value in range(256)] + [b"", *pieces]
    return Vocabulary(tuple(spelled), frozenset({CONTROL}), frozenset({CONTROL}), width=len(spelled))


BYTES = vocabulary_of([])


def stream(pieces: Sequence[bytes], stop: Sequence[str] = ()) -> tuple[list[str], IncrementalDetokenizer]:
    """Push one token a piece; every delta, the flush last."""
    detokenizer = IncrementalDetokenizer(vocabulary_of(pieces), stop)
    deltas = [detokenizer.push(CONTROL + 1 + i) for i in range(len(pieces))]
    deltas.append(detokenizer.flush())
    return deltas, detokenizer


def oracle(raw: bytes, stop: Sequence[str]) -> tuple[str, str | None]:
    """Decode everything at once; the stop string that ends first decides, the longest of a tie."""
    text = raw.decode("utf-8", "replace")
    for end in range(1, len(text) + 1):
        complete = [each for each in stop if text[:end].endswith(each)]
        if complete:
            longest = max(complete, key=len)
            return text[:end - len(longest)], longest
    return text, None


def cut(raw: bytes, rng: random.Random) -> list[bytes]:
    """Random pieces of 1 to 4 bytes."""
    pieces, at = [], 0
    while at < len(raw):
        size = rng.randint(1, 4)
        pieces.append(raw[at:at + size])
        at += size
    return pieces


@pytest.mark.parametrize("text", TEXTS)
def test_hand_053_byte_by_byte_no_broken_character_and_nothing_twice(text: str) -> None:
    """sglang#31598: the safe position moved back between two incomplete characters; one was sent twice."""
    deltas, detokenizer = stream([bytes([value]) for value in text.encode()])
    assert "".join(deltas) == text == detokenizer.text
    assert "\ufffd" not in "".join(deltas)
    assert [delta for delta in deltas if delta] == list(text), "one character at a time, each once"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(10))
def test_hand_053_any_split_into_tokens_gives_the_text(text: str, seed: int) -> None:
    deltas, _ = stream(cut(text.encode(), random.Random(seed)))
    assert "".join(deltas) == text
    assert not any("\ufffd" in delta for delta in deltas)


@pytest.mark.parametrize("cut_at", [1, 2, 3])
def test_an_answer_cut_inside_a_character_shows_the_replacement_only_at_the_end(cut_at: int) -> None:
    raw = "ok 😀".encode()[:3 + cut_at]
    deltas, _ = stream([bytes([value]) for value in raw])
    assert deltas[:-1] == ["o", "k", " "] + [""] * cut_at
    assert deltas[-1] == "\ufffd" == raw.decode("utf-8", "replace")[3:]


def test_invalid_bytes_become_replacements_as_soon_as_nothing_can_mend_them() -> None:
    detokenizer = IncrementalDetokenizer(BYTES)
    assert [detokenizer.push(value) for value in (0x61, 0xFF, 0xE4, 0x62)] == ["a", "\ufffd", "", "\ufffdb"]


def test_control_tokens_contribute_nothing_even_inside_a_character() -> None:
    detokenizer = IncrementalDetokenizer(BYTES)
    first, second = "é".encode()
    assert [detokenizer.push(token) for token in (CONTROL, first, CONTROL, second)] == ["", "", "", "é"]


def test_a_leading_blank_is_text() -> None:
    deltas, _ = stream([b" Hello", b" world"])
    assert deltas == [" Hello", " world", ""]


@pytest.mark.parametrize(("pieces", "stop", "shown", "matched"), [
    ([b"a ", b"E", b"N", b"D", b" b"], ["END"], ["a ", "", "", "", "", ""], "END"),
    ([b"a EN", b"d"], ["END"], ["a ", "ENd", ""], None),
    ([b"a EN"], ["END"], ["a ", "EN"], None),
    ([b"one\n", b"\ntwo"], ["\n\n"], ["one", "", ""], "\n\n"),
    ([b"x", b"yENDz"], ["END", "y"], ["x", "", ""], "y"),
    (["世".encode(), "界".encode()[:1], "界".encode()[1:]], ["世界"], ["", "", "", ""], "世界"),
    (["é".encode()[:1], "é".encode()[1:] + b"!", b"more"], ["é!"], ["", "", "", ""], "é!"),
])
def test_stop_strings_over_token_borders_and_inside_characters(
        pieces: list[bytes], stop: list[str], shown: list[str], matched: str | None) -> None:
    deltas, detokenizer = stream(pieces, stop)
    assert deltas == shown
    assert detokenizer.matched_stop == matched
    assert detokenizer.text == "".join(shown)


def test_the_stop_string_is_known_at_the_token_that_completes_it() -> None:
    detokenizer = IncrementalDetokenizer(BYTES, stop=["ab"])
    detokenizer.push(ord("a"))
    assert detokenizer.matched_stop is None
    detokenizer.push(ord("b"))
    assert detokenizer.matched_stop == "ab"


def test_a_half_character_can_complete_a_stop_string_of_replacements_only_at_the_end() -> None:
    deltas, detokenizer = stream([b"a", b"\xe4"], stop=["\ufffd"])
    assert deltas == ["a", "", ""]
    assert detokenizer.matched_stop == "\ufffd"


def test_flush_comes_once_and_ends_the_text() -> None:
    detokenizer = IncrementalDetokenizer(BYTES, stop=["xy"])
    detokenizer.push(ord("x"))
    assert detokenizer.flush() == "x"
    assert detokenizer.flush() == ""
    with pytest.raises(EngineStateError, match="after the end of the text"):
        detokenizer.push(ord("y"))
    with pytest.raises(EngineStateError, match="after the end of the text"):
        detokenizer.rebuild([])


@pytest.mark.parametrize("token_id", [-1, len(BYTES), 10**9])
def test_an_id_outside_the_vocabulary_is_an_error_that_names_it(token_id: int) -> None:
    with pytest.raises(IndexError, match=str(token_id)):
        IncrementalDetokenizer(BYTES).push(token_id)


def test_rewritten_ids_of_the_same_text_send_nothing_twice() -> None:
    """A jump retokenizes the answer: other ids, the same text and more; the sent position stays."""
    pieces = [b'"na', b'me": "', "né".encode()]
    detokenizer = IncrementalDetokenizer(vocabulary_of(pieces))
    before = "".join(detokenizer.push(value) for value in b'"name": "' + "n\u00e9".encode()[:2])
    detokenizer.rebuild([257, 258, 259])
    assert detokenizer.text == '"name": "né'
    after = detokenizer.push(ord("!")) + detokenizer.flush()
    assert before + after == '"name": "né!'


def test_rewritten_ids_keep_a_half_character_and_a_half_stop_string() -> None:
    detokenizer = IncrementalDetokenizer(vocabulary_of([b"ab", b"\xe4\xb8"]), stop=["b世"])
    assert [detokenizer.push(token) for token in (*b"ab", 0xE4)] == ["a", "", ""]
    detokenizer.rebuild([257, 258])
    assert detokenizer.push(0x96) == ""
    assert detokenizer.matched_stop == "b世"
    assert detokenizer.flush() == ""


def test_a_stop_string_in_text_that_a_jump_added_is_found() -> None:
    """Museum row 8: only the tail of the sampled output was searched, a jump emptied it."""
    detokenizer = IncrementalDetokenizer(vocabulary_of([b'", "age": ']), stop=['"age"'])
    assert detokenizer.push(ord("x")) == "x"
    detokenizer.rebuild([ord("x"), 257])
    assert detokenizer.matched_stop == '"age"'
    assert detokenizer.flush() == '", '


def test_ids_that_contradict_what_was_sent_are_refused_and_change_nothing() -> None:
    detokenizer = IncrementalDetokenizer(BYTES)
    sent = detokenizer.push(ord("a")) + detokenizer.push(ord("b"))
    for rewritten in (b"a", b"ax", b""):
        with pytest.raises(ValueError, match="does not begin with the text already sent, 'ab'"):
            detokenizer.rebuild(list(rewritten))
    assert sent + detokenizer.push(ord("c")) == "abc" == detokenizer.text


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_hand_053_on_the_real_tokenizer(text: str, embedded_folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(embedded_folder)
    detokenizer = IncrementalDetokenizer(tokenizer.vocabulary)
    deltas = [detokenizer.push(token_id) for token_id in tokenizer.encode(text, parse_control=False)]
    assert "".join(deltas) == text == detokenizer.text
    assert not any("\ufffd" in delta for delta in deltas)
    assert detokenizer.flush() == ""


STOPS = st.lists(st.text(alphabet="ab世😀\ufffd", min_size=1, max_size=3), max_size=3)
PIECES = st.lists(st.one_of(
    st.binary(min_size=1, max_size=3),
    st.sampled_from([b"a", b"b", "世".encode()[:2], "世".encode()[2:], "😀".encode()[:3], "😀".encode()[3:],
                     "a世".encode(), b"\xed\xa0\x80", b"\xf4\x90", b""])), max_size=16)


@given(pieces=PIECES, stop=STOPS)
def test_chunks_add_up_to_the_oracle_and_grow_as_its_prefixes(pieces: list[bytes], stop: list[str]) -> None:
    text, matched = oracle(b"".join(pieces), stop)
    deltas, detokenizer = stream(pieces, stop)
    assert ("".join(deltas), detokenizer.matched_stop) == (text, matched)
    shown = ""
    for delta in deltas:
        shown += delta
        assert text.startswith(shown)
        assert not any(each in shown for each in stop)
    assert detokenizer.text == text


@given(pieces=PIECES, stop=STOPS, at=st.integers(0, 16), seed=st.integers(0, 99))
def test_rewriting_the_ids_at_any_point_changes_no_text(
        pieces: list[bytes], stop: list[str], at: int, seed: int) -> None:
    """The same bytes in other tokens, in the middle of the stream: sent chunks still add up to the oracle."""
    recut = cut(b"".join(pieces[:at]), random.Random(seed))
    detokenizer = IncrementalDetokenizer(vocabulary_of([*pieces, *recut]), stop)
    ids = range(CONTROL + 1, CONTROL + 1 + len(pieces) + len(recut))
    sent = "".join(detokenizer.push(token) for token in ids[:len(pieces)][:at])
    detokenizer.rebuild(ids[len(pieces):])
    assert detokenizer.text == sent
    sent += "".join(detokenizer.push(token) for token in ids[:len(pieces)][at:]) + detokenizer.flush()
    assert (sent, detokenizer.matched_stop) == oracle(b"".join(pieces), stop)
