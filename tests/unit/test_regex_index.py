"""What outlines-core is given, and what it would do without."""

from __future__ import annotations

import pytest

from shared_runtime.constrain.libraries.regex_index import (
    END,
    START,
    bracketed,
    make_guide,
    make_index,
    make_vocabulary,
)
from tests.oracles.vocabularies import every_byte

VOCABULARY = every_byte()


def _spelled(pattern: str, text: str) -> bool:
    guide = make_guide(make_index(pattern, make_vocabulary(VOCABULARY)))
    for byte in text.encode():
        token_id = next(index for index, spelled in enumerate(VOCABULARY.token_bytes) if spelled == bytes([byte]))
        if not guide.accepts_tokens([token_id]):
            return False
        guide.advance(token_id)
    return guide.accepts_tokens([VOCABULARY.width])


def test_a_match_that_could_begin_anywhere_costs_no_more_than_one_that_cannot() -> None:
    """The library also builds the automaton of a search: without `START` this build does not come to an end."""
    import outlines_core

    index = make_index("[A-Z][ -~]{0,30}", make_vocabulary(VOCABULARY))
    assert isinstance(index, outlines_core.Index)
    assert len(index.get_transitions()) < 100
    assert _spelled("[A-Z][ -~]{0,30}", "A fine day.")
    assert not _spelled("[A-Z][ -~]{0,30}", "a fine day.")


@pytest.mark.parametrize(("pattern", "text"), [("", ""), ("a*", ""), ("abc|abcd", "abcd"),
                                               ("[0-9]+(\\.[0-9]+)?", "1.5")])
def test_every_text_is_there_from_its_beginning_to_its_end(pattern: str, text: str) -> None:
    assert _spelled(pattern, text)


def test_the_two_marks_begin_with_the_byte_that_no_token_of_the_index_has() -> None:
    assert START.encode()[0] == END.encode()[0]
    assert bracketed("a|b") == f"{START}(a|b){END}"
