"""Stop strings: found wherever the text is cut, never shown, and the same one whatever the pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_runtime.errors import RequestError
from shared_runtime.stop_strings import StopSearch


def oracle(text: str, stop: list[str]) -> tuple[str, str | None]:
    """Read the whole text by characters; the first end of a stop string decides, the longest of a tie."""
    for end in range(1, len(text) + 1):
        complete = [each for each in stop if text[:end].endswith(each)]
        if complete:
            longest = max(complete, key=len)
            return text[:end - len(longest)], longest
    return text, None


def run(pieces: list[str], stop: list[str]) -> tuple[list[str], str | None]:
    search = StopSearch(stop)
    shown = [search.push(piece) for piece in pieces]
    shown.append(search.finish())
    return shown, search.matched


@pytest.mark.parametrize(("stop", "text", "shown", "matched"), [
    (["END"], "a END b", "a ", "END"),
    (["END"], "a EN b", "a EN b", None),
    (["\n\n", "\n"], "a\n\nb", "a", "\n"),
    (["abcd", "bc"], "abcd", "a", "bc"),
    (["cd", "abcd", "bcd"], "abcd", "", "abcd"),
    (["aab"], "aaab", "a", "aab"),
    (["abab!"], "ababab!", "ab", "abab!"),
    (["👧"], "👨‍👩‍👧 ok", "👨‍👩‍", "👧"),
    (["a\u0301"], "bla\u0301", "bl", "a\u0301"),
    (["界"], "世界", "世", "界"),
    ([], "anything", "anything", None),
])
def test_the_stop_string_that_is_complete_first_ends_the_text(
        stop: list[str], text: str, shown: str, matched: str | None) -> None:
    for size in range(1, len(text) + 1):
        pieces = [text[i:i + size] for i in range(0, len(text), size)]
        got, found = run(pieces, stop)
        assert ("".join(got), found) == (shown, matched)


def test_what_may_become_a_stop_string_is_held_back_and_comes_out_when_it_does_not() -> None:
    search = StopSearch(["STOP"])
    assert [search.push(piece) for piece in ("x S", "TO", "LE S")] == ["x ", "", "STOLE "]
    assert search.finish() == "S"
    assert search.finish() == ""


def test_only_the_end_that_can_still_match_is_held_back() -> None:
    search = StopSearch(["abac"])
    assert search.push("zaba") == "z"
    assert search.push("b") == "ab"
    assert search.push("ac") == ""
    assert search.matched == "abac"


def test_nothing_comes_out_after_a_stop_string() -> None:
    search = StopSearch(["."])
    assert search.push("one. two") == "one"
    assert search.push("three. four") == ""
    assert search.finish() == ""
    assert search.matched == "."


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(RequestError, match="stop string is empty"):
        StopSearch(["a", ""])


def test_the_memory_of_the_search_is_bounded_by_the_stop_strings() -> None:
    """So the cost of a push does not grow with the text."""
    search = StopSearch(["aaaaab", "xyz"])
    for _ in range(2_000):
        search.push("aaa")
        assert len(search._held) < 6


LETTERS = st.text(alphabet="ab\n", max_size=30)


@given(pieces=st.lists(st.text(alphabet="ab\n", max_size=4), max_size=12),
       stop=st.lists(st.text(alphabet="ab\n", min_size=1, max_size=5), max_size=4))
def test_any_cutting_gives_what_the_whole_text_gives(pieces: list[str], stop: list[str]) -> None:
    shown, matched = run(pieces, stop)
    assert ("".join(shown), matched) == oracle("".join(pieces), stop)


@given(text=LETTERS, stop=st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), min_size=1, max_size=4))
def test_no_stop_string_and_no_beginning_of_the_matched_one_is_ever_shown(text: str, stop: list[str]) -> None:
    search = StopSearch(stop)
    shown = ""
    for i, character in enumerate(text):
        shown += search.push(character)
        assert not any(each in shown for each in stop)
        final = oracle(text, stop)[0]
        assert final.startswith(shown), f"after {i + 1} characters"
