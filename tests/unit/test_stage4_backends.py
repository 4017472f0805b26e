"""Stage 4: the contract of `BaseGrammarObject`, held by each library behind it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import jsonschema
import pytest

from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConstraintError, GrammarTimeoutError, UnsatisfiableConstraintError
from shared_runtime.grammar_limits import GrammarLimits
from stages.stage4_backends.base_grammar_backend import DEVIATIONS, REGISTRY
from stages.stage4_backends.outlines_backend import OutlinesGrammarBackend
from tests.unit.stage4_helpers import BACKENDS, backend, context, grammar, mask_of, real_tokenizer, take, whole

each_backend = pytest.mark.parametrize("name", BACKENDS)
JSON = Constraint.json_schema({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}},
                               "required": ["a", "b"], "additionalProperties": False})


@each_backend
def test_rollback_is_the_inverse_of_accept_over_the_whole_text(name: str) -> None:
    """Museum row 34: 11 tokens and more, the stop token among them."""
    one = grammar(name, Constraint.regex(r"[a-z]{3}(-[0-9]{2}){6}"))
    before = [mask_of(one)]
    ids = [real_tokenizer().vocabulary.byte_tokens[byte] for byte in b"abc-01-02-03-04-05-06"]
    for token_id in ids:
        assert one.accept_token(token_id)
        before.append(mask_of(one))
    assert one.accept_token(2)
    assert one.is_terminated()
    one.rollback(1)
    assert not one.is_terminated()
    assert mask_of(one) == before[-1]
    for k in (5, 12, 4):
        one.rollback(k)
        del before[-k:]
        assert mask_of(one) == before[-1]
    with pytest.raises(ValueError, match="take back"):
        one.rollback(1)


@each_backend
def test_a_refused_token_changes_nothing(name: str) -> None:
    one = grammar(name, JSON)
    take(one, '{"a": 1')
    before = mask_of(one)
    for bad in (-1, 0, 1, 2, 49_152, 10**6, *real_tokenizer().encode('"}x')):
        assert not one.accept_token(bad)
        assert mask_of(one) == before
    take(one, ', "b": true}')
    assert one.accepting


@each_backend
def test_a_copy_starts_at_the_beginning_and_shares_nothing_else(name: str) -> None:
    one = grammar(name, Constraint.regex("(red|green), done"))
    start = mask_of(one)
    take(one, "red,")
    here = mask_of(one)
    other = one.copy()
    assert mask_of(other) == start
    take(other, "green, done")
    assert mask_of(one) == here


@each_backend
def test_the_stop_set_is_allowed_iff_the_text_is_complete(name: str) -> None:
    """Museum row 48: every stop token of the model, and no other control token."""
    vocabulary = replace(real_tokenizer().vocabulary, stop_ids=frozenset({0, 2}), fingerprint="")
    one = REGISTRY.create(name, context(vocabulary)).init_value(Constraint.regex("[0-9]{1,2}")).grammar
    assert mask_of(one).isdisjoint(vocabulary.control_ids)
    take(one, "4")
    assert mask_of(one) & vocabulary.control_ids == {0, 2}
    assert one.accept_token(0)
    assert one.is_terminated()
    assert not one.accept_token(17)
    with pytest.raises(ConstraintError):
        mask_of(one)


@each_backend
def test_no_dead_end_is_offered(name: str) -> None:
    """No token spells U+001D, so `ad` must not be begun; a pattern that needs it is refused, naming the byte."""
    one = grammar(name, Constraint.regex("ad\x1d|ok"))
    assert {real_tokenizer().vocabulary.token_bytes[i] for i in mask_of(one)} <= {b"o", b"ok"}
    with pytest.raises(UnsatisfiableConstraintError, match="0x1d"):
        backend(name).init_value(Constraint.regex("a\x1d"))


@each_backend
def test_control_tokens_are_never_text(name: str) -> None:
    one = grammar(name, Constraint.regex(r"<\|im_end\|>|.{1,30}"))
    take(one, "a <|im_start")
    assert mask_of(one) & real_tokenizer().vocabulary.control_ids <= {2}


@each_backend
@pytest.mark.parametrize(("pattern", "come", "suffix", "text"), [
    ("x: true, (a|b)", b"x", b"", ": true, "), ("é!(a|b)", b"\xc3", b"\xa9", "!"), ("[ab]c?", b"a", b"", ""),
])
def test_forced_text(name: str, pattern: str, come: bytes, suffix: bytes, text: str) -> None:
    """Museum rows 13, 15, 16 and 33: ASCII, a begun character, and an optional rest that is not forced."""
    one = grammar(name, Constraint.regex(pattern))
    for byte in come:
        assert one.accept_token(real_tokenizer().vocabulary.byte_tokens[byte])
    helper = one.try_jump_forward()
    if not text or (name == "xgrammar" and suffix):  # none inside a character, as the README says
        assert helper is None
    else:
        assert helper is not None
        assert (helper.suffix, helper.text) == (suffix, text)
        assert one.jump_forward_str_state(helper)[0] == text


@each_backend
def test_moving_to_another_spelling_and_being_refused(name: str) -> None:
    encode, single = real_tokenizer().encode, real_tokenizer().vocabulary.byte_tokens
    one = grammar(name, Constraint.regex("status: (active|absent)"))
    old = [single[byte] for byte in b"status"]
    assert all(map(one.accept_token, old))
    before = mask_of(one)
    assert not one.jump_and_retokenize(old, encode("status; a"), -1)
    assert mask_of(one) == before
    assert one.jump_and_retokenize(old, encode("status: a"), -1)
    take(one, "bsent")
    assert one.accepting


@each_backend
@pytest.mark.parametrize("whitespace", ["compact", "any"])
def test_whitespace_is_the_same_on_every_backend(name: str, whitespace: str) -> None:
    made = REGISTRY.create(name, context(whitespace=whitespace)).init_value(JSON).grammar
    assert whole(made.copy(), '{"a": 1, "b": true}')
    for text in ('{"a":1,"b":true}', '{ "a" : 1 , "b" : true }'):
        assert whole(made.copy(), text) is (whitespace == "any"), text
    assert not whole(made.copy(), '{"a": 1,' + " " * 20 + '"b": true}')


@each_backend
@pytest.mark.parametrize("pattern", ['^a"b$', '^a\\\\b$', "^a[^x]b$", "^a|b$", "a.c"])
def test_a_pattern_never_breaks_the_string_it_is_in(name: str, pattern: str) -> None:
    """xgrammar copies a pattern between the quotation marks as it is; what comes out must still be JSON."""
    schema = {"type": "string", "pattern": pattern}
    try:
        made = backend(name).init_value(Constraint.json_schema(schema)).grammar
    except ConstraintError:
        return
    for inner in ('a"b', 'a\\"b', "a\\b", "a\\\\b", "a", "b", "axb", "a\nb", "abc", "a\\nc"):
        text = f'"{inner}"'
        if whole(made.copy(), text):
            jsonschema.validate(json.loads(text), schema)


def test_masks_hold_no_half_of_a_surrogate_pair() -> None:
    one = grammar("xgrammar", Constraint.json_schema({"type": "string"}))
    single, spelled = real_tokenizer().vocabulary.byte_tokens, real_tokenizer().vocabulary.token_bytes
    assert one.accept_token(single[ord('"')])
    assert one.accept_token(single[0xED])
    firsts = {spelled[i][0] for i in mask_of(one)}
    assert firsts
    assert max(firsts) < 0xA0


def test_recursive_ebnf_keeps_tokens_that_end_it_twice() -> None:
    for name in ("xgrammar", "llguidance"):
        one = grammar(name, Constraint.ebnf('root ::= "(" root ")" | "x" | "y"'))
        take(one, "((x")
        assert whole(one, "))")
    one = grammar("xgrammar", Constraint.ebnf('root ::= "(" root ")" | "x"'))
    take(one, "((x")
    assert b"))" in {real_tokenizer().vocabulary.token_bytes[i] for i in mask_of(one)}


@pytest.mark.parametrize("name", ["xgrammar", "llguidance"])
def test_words_of_an_ebnf_grammar_are_not_greedy(name: str) -> None:
    """A lexer that takes the longest word would lose each of these."""
    for source, text in (('root ::= item "a"\nitem ::= [a-z]+', "xa"), ('root ::= ("ab" | "abc") "c"', "abc"),
                         ('root ::= [a-z]* "end"', "xend"), ('root ::= "\\u0041" [\\x42-\\x43]{2}', "ABC")):
        assert whole(grammar(name, Constraint.ebnf(source)), text), source


@pytest.mark.parametrize("name", ["xgrammar", "llguidance"])
@pytest.mark.parametrize(("source", "named"), [
    ("root ::= root", "`root` can never"), ('root ::= "a" root', "`root` can never"),
    ('root ::= "a" | b\nb ::= "(" b ")"', "`b` can never"),
    ('root ::= a c?\na ::= b\nb ::= [x] (a | b+)\nc ::= "c"', "`a` can never"), ('x ::= "a"', "no rule `root`"),
])
def test_a_grammar_that_can_never_be_finished_is_refused_by_name(name: str, source: str, named: str) -> None:
    with pytest.raises(ConstraintError, match=named):
        backend(name).init_value(Constraint.ebnf(source))


@pytest.mark.parametrize("name", ["xgrammar", "llguidance"])
@pytest.mark.parametrize(("source", "text"), [
    ('root ::= "a" root | "b"', "aab"), ('root ::= "a" root?', "aa"), ('root ::= "a" root*', "aaa"),
    ('root ::= "a" root{0,2}', "aaa"), ('root ::= ("x" | root) "y" | other\nother ::= "z"', "zyy"),
    ('root ::= "a"\nunused ::= "b" unused', "a"),
])
def test_a_grammar_that_may_go_on_for_ever_and_need_not_is_served(name: str, source: str, text: str) -> None:
    assert whole(grammar(name, Constraint.ebnf(source)), text)


def test_an_end_that_goes_on_like_a_number_is_refused_by_llguidance_alone() -> None:
    """Its reader takes `1` of the end `1>` for part of the value."""
    for schema, value, end, served in (
            ({"type": "integer"}, "12", "1>", False), ({"type": "number"}, "2.5", ".5", False),
            ({"type": "integer"}, "12", "</f>", True), ({"type": "string"}, '"a"', "1>", True),
            ({"enum": ["a", None]}, '"a"', "e", True), ({"enum": [7]}, "7", "e", False)):
        tag = Constraint.structural_tag({"structures": [{"begin": "<f>", "schema": schema, "end": end}],
                                         "triggers": ["<f"]})
        assert whole(grammar("xgrammar", tag), f"so <f>{value}{end} ok")
        if served:
            assert whole(grammar("llguidance", tag), f"so <f>{value}{end} ok")
        else:
            with pytest.raises(ConstraintError, match=r"structures\[0\].end"):
                grammar("llguidance", tag)


def test_the_narrow_mask_of_llguidance_is_its_own_canonical_token() -> None:
    one = grammar("llguidance", Constraint.regex("(captain|x) y"))
    take(one, "c")
    allowed = mask_of(one)
    matcher = vars(one)["_matcher"]
    assert allowed == {matcher.compute_ff_tokens()[0]}
    assert len(mask_of(grammar("xgrammar", Constraint.regex("captain")))) > 1


def test_an_index_that_would_be_too_large_is_refused_before_it_is_begun() -> None:
    with pytest.raises(GrammarTimeoutError, match="cannot be stopped"):
        backend("outlines").init_value(Constraint.regex(".{0,1000}"))
    small = OutlinesGrammarBackend(context(limits=GrammarLimits(max_states=50)))
    with pytest.raises(GrammarTimeoutError, match="50 states"):
        small.init_value(Constraint.regex("[ab]{100}"))


@each_backend
@pytest.mark.parametrize("bad", [
    Constraint.regex("("), Constraint("json_schema", "{"), Constraint("json_schema", '{"type": "strnig"}'),
    Constraint.ebnf("root ::= undefined"), Constraint("structural_tag", "[]"),
], ids=lambda bad: bad.text)
def test_every_invalid_input_is_one_of_our_errors(name: str, bad: Constraint) -> None:
    """Museum row 41: each backend, each invalid input."""
    with pytest.raises(ConstraintError):
        backend(name).init_value(bad)


@pytest.mark.parametrize("name", ["xgrammar", "llguidance"])
@pytest.mark.parametrize(("structures", "triggers", "said"), [
    ([{"begin": "<a>", "schema": {}, "end": ""}], ["<b>"], "no trigger"),
    ([{"begin": "<a>", "schema": {}, "end": ""}], [], "at least one"),
    ([{"begin": "<a>", "schema": {}, "end": ""}], ["<", "<a"], "prefixes"),
    ([], ["<"], "at least one"), ([{"begin": "<a>", "end": ""}], ["<"], "schema"),
    ([{"begin": "<a>", "schema": {}, "end": ""}], ["<a", "<b"], "no tag begins with '<b'"),
    ([{"begin": "<a>", "schema": {"type": "object", "properties": {"b": {"pattern": "("}}}, "end": ""}], ["<a"],
     r"structures\[0\].schema/properties/b/pattern, position 0"),
    ([{"begin": "<a>", "schema": {"$ref": "#"}, "end": ""}], ["<a"], r"structures\[0\].schema/\$ref"),
])
def test_a_structural_tag_that_cannot_work_is_refused(name: str, structures: list[object], triggers: list[str],
                                                      said: str) -> None:
    tag = Constraint.structural_tag({"structures": structures, "triggers": triggers})
    with pytest.raises(ConstraintError, match=said):
        backend(name).init_value(tag)


def test_no_library_is_imported_before_it_is_needed() -> None:
    script = ("import sys; import stages.stage4_backends, stages.stage4_backends.base_grammar_backend as base;"
              "from tests.unit.stage4_helpers import context;"
              "[base.REGISTRY.create(name, context()) for name in base.REGISTRY.names];"
              "print(sorted({'xgrammar', 'llguidance', 'outlines', 'outlines_core'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_list_of_deviations_is_in_the_readme() -> None:
    readme = DEVIATIONS.with_name("README.md").read_text(encoding="utf-8")
    assert re.search(r"`deviations\.toml`", readme)
