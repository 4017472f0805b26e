"""The small recognisers agree with Python's `re` where both can speak, and with the handed cases elsewhere."""

from __future__ import annotations

import itertools
import json
import random
import re
from pathlib import Path

import pytest
import regex as partial_regex

from jumpforward.recognisers.ebnf import EbnfRecogniser, TooMuchWork
from jumpforward.recognisers.ebnf_grammar import complement, parse_grammar
from jumpforward.recognisers.structural_tag import TagRecogniser
from shared_runtime.conformance.case_file import Case, read_cases
from shared_runtime.errors import GrammarSyntaxError
from tests.oracles.json_oracle import is_json_of

HANDED = [case for case in read_cases(Path(__file__).parent.parent / "data" / "cases.jsonl") if isinstance(case, Case)]


def of_kind(kind: str) -> list[Case]:
    return [case for case in HANDED if case.kind == kind and case.expect != "error"]


@pytest.mark.parametrize("case", of_kind("ebnf"), ids=lambda case: case.id)
def test_ebnf_agrees_with_the_handed_cases(case: Case) -> None:
    assert case.constraint is not None
    recogniser = EbnfRecogniser(case.constraint.source)
    assert [text for text in case.accept if not recogniser.accepts(text)] == []
    assert [text for text in case.reject if recogniser.accepts(text)] == []
    assert all(recogniser.viable(text[:cut]) for text in case.accept for cut in range(len(text) + 1))


@pytest.mark.parametrize("case", of_kind("structural_tag"), ids=lambda case: case.id)
def test_tags_agree_with_the_handed_cases(case: Case) -> None:
    assert case.constraint is not None
    tag = TagRecogniser.of(case.constraint.source)
    assert tag is not None
    assert [text for text in case.accept if not tag.accepts(text, is_json_of)] == []
    assert [text for text in case.reject if tag.accepts(text, is_json_of)] == []


@pytest.mark.parametrize("case", of_kind("json_schema"), ids=lambda case: case.id)
def test_json_agrees_with_the_handed_cases(case: Case) -> None:
    assert case.constraint is not None
    schema = case.constraint.source
    assert [text for text in case.accept if not is_json_of(schema, text)] == []
    accepted = [text for text in case.reject if is_json_of(schema, text)]
    formats = [text for text in accepted if '"format"' in schema]  # `jsonschema` does not look at formats by itself
    assert accepted == formats


def random_rule(rng: random.Random, depth: int) -> tuple[str, str]:
    """The same language as EBNF and as a regex."""
    kind = rng.choice(["text", "class", "not"] if depth == 0 else ["text", "class", "join", "either", "repeat"])
    match kind:
        case "text":
            text = rng.choice(["a", "ab", "é", "天b", "-", "]"])
            return json.dumps(text, ensure_ascii=False), re.escape(text)
        case "class":
            return rng.choice([("[a-c]", "[a-c]"), ("[é天]", "[é天]"), ("[b\\]-]", "[b\\]\\-]"), (".", "(?s:.)")])
        case "not":
            return "[^a-b]", "[^a-b]"
    left, right = random_rule(rng, depth - 1), random_rule(rng, depth - 1)
    match kind:
        case "join":
            return f"{left[0]} {right[0]}", f"{left[1]}{right[1]}"
        case "either":
            return f"({left[0]} | {right[0]})", f"(?:{left[1]}|{right[1]})"
    count = rng.choice(["*", "+", "?", "{2}", "{1,2}", "{2,}", "{0,3}"])
    return f"({left[0]}){count}", f"(?:{left[1]}){count}"


def test_ebnf_agrees_with_python_on_random_rules() -> None:
    rng = random.Random(5)
    texts = ["".join(text) for length in range(4) for text in itertools.product("abé天-", repeat=length)]
    accepted = 0
    for _ in range(150):
        rule, pattern = random_rule(rng, 3)
        recogniser, python = EbnfRecogniser(f"root ::= {rule}"), re.compile(pattern)
        partial = partial_regex.compile(pattern)
        for text in rng.sample(texts, 40):
            found = recogniser.accepts(text)
            assert found == (python.fullmatch(text) is not None), (rule, text)
            assert recogniser.viable(text) == (partial.fullmatch(text, partial=True) is not None), (rule, text)
            accepted += found
    assert accepted > 300


@pytest.mark.parametrize(("grammar", "inside", "outside"), [
    ("root ::= root root | \"a\" | \"\"", ["", "aaaa"], ["b", "aab"]),
    ("root ::= \"(\" root \")\" root | \"\"", ["", "()(())"], ["(", "())"]),
    ("# a comment\nroot ::=\n  a  # another\n  b\na ::= \"x\"\nb ::= \"\\x41\\u00e9\\U0001F600\"", ["xAé😀"], ["xA"]),
    ("root ::= (\"a\" | \"b\")* tail?\ntail ::= [0-9]{2,3}", ["", "ab12", "123"], ["1", "1234"]),
    ("root ::= [^\"\\\\\\x00-\\x1f]+", ["héllo"], ["", "a\"b", "a\nb"]),
    ("root ::= dead | \"ok\"\ndead ::= \"a\" dead", ["ok"], ["a", "aa"]),
])
def test_ebnf_on_grammars_that_are_no_regex(grammar: str, inside: list[str], outside: list[str]) -> None:
    recogniser = EbnfRecogniser(grammar)
    assert all(recogniser.accepts(text) for text in inside)
    assert not any(recogniser.accepts(text) for text in outside)


def test_a_beginning_that_nothing_finishes_is_not_viable() -> None:
    recogniser = EbnfRecogniser("root ::= dead | \"ok\"\ndead ::= \"a\" dead")
    assert recogniser.viable("o")
    assert not recogniser.viable("a")
    assert EbnfRecogniser("root ::= \"a\" root").first is None


@pytest.mark.parametrize(("grammar", "named"), [
    ("", "root"), ("a ::= \"x\"", "root"), ("root ::= nobody", "nobody"), ("root ::= \"a", "not closed"),
    ("root ::= [a", "not closed"), ("root ::= (\"a\"", "not closed"), ("root ::= \"\\q\"", "escape"),
    ("root ::= [z-a]", "backwards"), ("root ::= \"a\"{3,2}", "smaller"), ("root ::= \"a\"{99999}", "repeat"),
    ("root ::= \"a\"\nroot ::= \"b\"", "twice"), ("root ::= %", "begins nothing"), ("x", "::="),
    ("root ::= " + "(" * 200, "nested"), ("root ::= \"\\u12\"", "escape"),
])
def test_a_bad_grammar_is_named(grammar: str, named: str) -> None:
    with pytest.raises(GrammarSyntaxError, match=named):
        parse_grammar(grammar)


def test_the_recogniser_gives_up_instead_of_hanging() -> None:
    with pytest.raises(TooMuchWork):
        EbnfRecogniser("root ::= root root root | \"a\" | \"\"", max_items=3_000).accepts("a" * 200)


def test_the_complement_of_a_class_leaves_the_surrogates_out() -> None:
    every = complement([])
    assert every == ((0, 0xD7FF), (0xE000, 0x10FFFF))
    assert complement([(0x62, 0x63), (0x61, 0x61), (0xD000, 0xE005)]) == ((0, 0x60), (0x64, 0xCFFF),
                                                                          (0xE006, 0x10FFFF))


TAG = {"structures": [{"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"},
                      {"begin": "<f=b>", "schema": {"type": "string"}, "end": "</f>"}], "triggers": ["<f="]}


@pytest.mark.parametrize(("text", "inside"), [
    ("", True), ("free < text <f", True), ("<f=a>12</f>", True), ("a<f=a> 1 </f>b<f=b>\"x\"</f>c", True),
    ("<f=b>\"a</f>b\"</f>", True), ("<f=", False), ("<f=c>1</f>", False), ("<f=a>x</f>", False), ("<f=a>1", False),
    ("<f=a>1</f><f=", False), ("<f=a>\"x\"</f>", False), ("<f=a>1</f> <f=b>2</f>", False),
])
def test_tags(text: str, inside: bool) -> None:
    tag = TagRecogniser.of(json.dumps(TAG))
    assert tag is not None
    assert tag.accepts(text, is_json_of) is inside
