"""Strings of a bounded length as rules: the same masks as from the pattern, which the library reads by itself."""

from __future__ import annotations

import json
import random

import pytest
import torch
import xgrammar
from torch import Tensor

from shared_runtime.constrain.regex.regex_tree import render, repeat
from shared_runtime.constrain.regex.spellable import Speller
from shared_runtime.constrain.schema.counted_strings import MOST_RULES, is_written_out, marked_pattern, write_out
from shared_runtime.constrain.schema.json_text import JSON_CHARACTER
from shared_runtime.vocabulary import Vocabulary

BYTES = [bytes([byte]) for byte in (*range(0x20, 0x7F), *b"\n\t", *"é€😀".encode())]
WORDS = [b"ab", b"abc", b'a"', b'", "', b'"}', b'": "', b'{"', b"\\n", b"\\u00", b"e9", b'\\"', b"a\\", b"\xc3\xa9\xc3",
         b"\xa9\xc3\xa9", "€€".encode(), b'b"}', b"a\nb", b"\\\\", b'\\""', b"name", b"five!"]
TOKENS = (b"", *BYTES, *WORDS)
SMALL = Vocabulary(TOKENS, control_ids=frozenset({0}), stop_ids=frozenset({0}), width=len(TOKENS) + 3)
BOUNDS = [(0, 0), (0, 1), (1, 1), (0, 5), (1, 20), (3, 3), (2, 7), (0, None), (1, None), (4, None), (MOST_RULES, None)]


def _schema(pattern: str) -> dict[str, object]:
    string = {"type": "string", "pattern": pattern}
    return {"type": "object", "properties": {"a": string, "b": {"anyOf": [{"type": "null"}, string]}},
            "required": ["a", "b"], "additionalProperties": False}


def _grammar(schema: object) -> str:
    return str(xgrammar.Grammar.from_json_schema(json.dumps(schema), any_whitespace=False, separators=(", ", ": ")))


def _naive(low: int, high: int | None) -> str:
    tree = Speller(SMALL).restrict(repeat(JSON_CHARACTER, low, high))
    return f"^({render(tree, negated_classes=False)})$"


def _marked(low: int, high: int | None) -> str:
    marked = marked_pattern(low, high)
    assert marked is not None
    return marked


def _compilers() -> list[xgrammar.GrammarCompiler]:
    info = xgrammar.TokenizerInfo(list(TOKENS), xgrammar.VocabType.RAW, vocab_size=SMALL.width, stop_token_ids=[0])
    return [xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False, enable_dynamic_compilation=lazy)
            for lazy in (False, True)]


def _mask(matcher: xgrammar.GrammarMatcher) -> Tensor:
    mask: Tensor = xgrammar.allocate_token_bitmask(1, SMALL.width)
    matcher.fill_next_token_bitmask(mask, 0)
    return mask


def _allowed(mask: Tensor) -> list[int]:
    return [token_id for token_id in range(SMALL.width) if int(mask[0, token_id // 32]) >> token_id % 32 & 1]


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_the_rules_have_the_masks_of_the_pattern(low: int, high: int | None) -> None:
    eager, lazy = _compilers()
    written = write_out(_grammar(_schema(_marked(low, high))), Speller(SMALL))
    assert is_written_out(written)
    assert 'Regex("' not in written
    compiled = [eager.compile_grammar(_grammar(_schema(_naive(low, high)))), eager.compile_grammar(written),
                lazy.compile_grammar(written)]
    draw = random.Random(low)
    ended = 0
    for _ in range(30):
        oracle, *others = [xgrammar.GrammarMatcher(one) for one in compiled]
        for _ in range(40):
            mask = _mask(oracle)
            for other in others:
                assert torch.equal(_mask(other), mask)
            token_id = draw.choice(_allowed(mask))
            if token_id == 0:
                ended += 1
                break
            for matcher in (oracle, *others):
                assert matcher.accept_token(token_id)
    assert ended or low > 20


def test_a_grammar_without_marks_stays_as_it_is() -> None:
    text = _grammar(_schema("^([a-z]{2})$"))
    assert write_out(text, Speller(SMALL)) == text
    assert not is_written_out(text)


def test_text_that_looks_like_a_mark_is_none() -> None:
    """A constant, a name and a pattern of the user that spell the mark are left alone: theirs stand in a group."""
    schema = {"type": "object", "properties": {"^[1,20]$": {"const": "^[1,20]$"}, "p": {"type": "string",
              "pattern": "^(^[1,20]$)$"}}, "required": ["^[1,20]$"], "additionalProperties": False}
    assert write_out(_grammar(schema), Speller(SMALL)) == _grammar(schema)


def test_a_string_too_long_for_rules_has_no_mark() -> None:
    assert marked_pattern(0, MOST_RULES) is not None
    assert marked_pattern(0, MOST_RULES + 1) is None
    assert marked_pattern(MOST_RULES + 1, None) is None


def test_names_of_properties_are_counted_too() -> None:
    eager, _ = _compilers()
    schema = {"type": "object", "propertyNames": {"type": "string", "pattern": _marked(1, 2)},
              "additionalProperties": {"type": "null"}}
    compiled = eager.compile_grammar(write_out(_grammar(schema), Speller(SMALL)))
    for text, right in (('{"ab": null}', True), ('{"abc": null}', False), ('{"": null}', False),
                        ('{"é\\n": null}', True), ("{}", True)):
        matcher = xgrammar.GrammarMatcher(compiled)
        assert (matcher.accept_string(text) and matcher.is_completed()) is right, text
