"""Stage 5's three backends: one mask for a batch, one stop set, no id outside the vocabulary, tags for tool calls."""

from __future__ import annotations

import ast
import json
import random
import re
from pathlib import Path

import pytest
import torch

import stages
from jumpforward.recognisers.structural_format import FormatRecogniser
from jumpforward.validity import is_valid
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError, ConstraintError, UnsatisfiableConstraintError, UnsupportedConstraintError
from shared_runtime.policy import AdmitState, SampledRow, StageOptions
from shared_runtime.sampling_params import SamplingParams
from shared_runtime.tokenizer import Tokenizer
from shared_runtime.vocabulary import Vocabulary
from stages.stage5_backend_jump.base_grammar_backend import REGISTRY, BaseGrammarBackend, BaseGrammarObject
from stages.stage5_backend_jump.decoder import STAGE, GrammarManagerPolicy
from stages.stage5_backend_jump.torch_ops.bitmask_torch_ops import naive_apply_token_bitmask
from stages.stage5_backend_jump.utils import MaskBuffer
from tests.conftest import EngineFactory
from tests.oracles.json_oracle import is_json_of
from tests.unit.stage5_helpers import (
    SMALL,
    A,
    B,
    ScriptedBackend,
    WordGrammar,
    allowed_in,
    batch_of,
    context_over,
    request,
)

pytestmark = pytest.mark.model

FOLDER = Path(stages.__file__).parent / "stage5_backend_jump"
JUMPS = {"try_jump_forward", "jump_forward_str_state", "jump_and_retokenize"}
CALL = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"], "additionalProperties": False}
TOOLS = {"structures": [{"begin": "<call>", "schema": CALL, "end": "</call>"}], "triggers": ["<call"]}
TOOLS_FORMAT = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<call"], "tags": [
    {"begin": "<call>", "content": {"type": "json_schema", "json_schema": CALL}, "end": "</call>"}]}}
GRAMMARS = [(Constraint.regex(r'"[^"]{0,20}"'), '"été ho"'), (Constraint.regex("[0-9]{2}(-[0-9]{2})*"), "12-34"),
            (Constraint.json_schema(CALL), '{"city": "Bergen", "days": 3}'), (Constraint.choice(["yes", "no"]), "yes")]

each_backend = pytest.mark.parametrize("name", STAGE.capabilities.backends)


@pytest.fixture(scope="module")
def tokenizer(embedded_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(embedded_folder)


@pytest.fixture(scope="module")
def backends(tokenizer: Tokenizer) -> dict[str, BaseGrammarBackend]:
    return {name: REGISTRY.create(name, context_over(tokenizer.vocabulary, tokenizer))
            for name in STAGE.capabilities.backends}


def grammars_along(backend: BaseGrammarBackend, tokenizer: Tokenizer, count: int) -> list[BaseGrammarObject]:
    """`count` grammars in different places of different texts."""
    rng = random.Random(5)
    compiled = [(backend.init_value(constraint).grammar, tokenizer.encode(text)) for constraint, text in GRAMMARS]
    made = []
    for _ in range(count):
        first, ids = rng.choice(compiled)
        grammar = first.copy()
        for token_id in ids[:rng.randrange(len(ids))]:
            if token_id not in allowed_in(grammar):
                break
            grammar.accept_token(token_id)
        made.append(grammar)
    return made


@each_backend
@pytest.mark.parametrize("in_threads", [False, True])
def test_the_batch_fill_equals_filling_one_by_one(
        name: str, in_threads: bool, backends: dict[str, BaseGrammarBackend], tokenizer: Tokenizer,
        monkeypatch: pytest.MonkeyPatch) -> None:
    if in_threads:
        monkeypatch.setattr("shared_runtime.constrain.using.fill_gate.FillGate._choose", lambda gate, rows: True)
    grammars = grammars_along(backends[name], tokenizer, 12)
    rows = [11, 3, 0, 7, 9, 1, 12, 5, 13, 2, 4, 8]
    entries = list(zip(rows, grammars, strict=True))
    width = tokenizer.vocabulary.width
    together, one_by_one = (grammars[0].allocate_vocab_mask(width, 15, torch.device("cpu")) for _ in range(2))
    for row, grammar in entries:
        grammar.fill_vocab_mask(one_by_one, row)
    grammars[0].fill_vocab_mask_batched(entries, together)
    assert torch.equal(together, one_by_one)
    assert (together[[6, 10, 14]] == -1).all()
    dense = grammars[0].allocate_vocab_mask(width, 12, torch.device("cpu"))
    grammars[0].fill_vocab_mask_batched([(row, grammar) for row, (_, grammar) in enumerate(entries)], dense)
    assert torch.equal(dense, one_by_one[rows])


@each_backend
def test_a_batch_with_a_stranger_or_an_ended_grammar_is_filled_row_by_row(
        name: str, backends: dict[str, BaseGrammarBackend], tokenizer: Tokenizer) -> None:
    own = backends[name].init_value(Constraint.regex("[0-9]{4}")).grammar
    stranger = WordGrammar(tokenizer.vocabulary, [17])
    mask = own.allocate_vocab_mask(tokenizer.vocabulary.width, 3, torch.device("cpu"))
    own.fill_vocab_mask_batched([(0, own), (1, own.copy()), (2, stranger)], mask)
    assert stranger.fills == 1
    assert torch.equal(mask[0], mask[1])
    ended = backends[name].init_value(Constraint.regex("a?")).grammar
    ended.accept_token(2)
    with pytest.raises(ConstraintError):
        own.fill_vocab_mask_batched([(0, own), (1, ended)], mask)


@each_backend
def test_ids_outside_the_vocabulary_never_reach_a_library(
        name: str, backends: dict[str, BaseGrammarBackend], tokenizer: Tokenizer) -> None:
    """Museum row 47. llguidance's matcher would be lost for good."""
    grammar = backends[name].init_value(Constraint.regex("[a-z]+")).grammar
    before = allowed_in(grammar)
    for bad in (-1, 49_152, 49_153, 10**9, -(2**31), 0, 1, 5):
        with pytest.raises(ConstraintError, match=str(bad)):
            grammar.accept_token(bad)
        assert (allowed_in(grammar), grammar.accepted) == (before, 0)
    grammar.accept_token(tokenizer.encode("abc")[0])
    assert grammar.accepted == 1


@each_backend
def test_the_stop_set_of_a_grammar_is_the_engines(name: str, tokenizer: Tokenizer) -> None:
    """Museum row 48: one EOS of the tokenizer, more of the model's config."""
    known = tokenizer.vocabulary
    two = Vocabulary(known.token_bytes, known.control_ids, frozenset({2, 7}), width=known.width)
    backend = REGISTRY.create(name, context_over(two, tokenizer))
    for stop in (2, 7):
        grammar = backend.init_value(Constraint.choice(["yes"])).grammar
        assert allowed_in(grammar).isdisjoint({2, 7})
        for token_id in tokenizer.encode("yes"):
            grammar.accept_token(token_id)
        assert allowed_in(grammar) == {2, 7}
        grammar.accept_token(stop)
        assert grammar.is_terminated()
        grammar.rollback(1)
        assert allowed_in(grammar) == {2, 7}


@each_backend
def test_rollback_is_exact_at_every_length(
        name: str, backends: dict[str, BaseGrammarBackend], tokenizer: Tokenizer) -> None:
    grammar = backends[name].init_value(Constraint.regex('"[a-z é]{1,20}"')).grammar
    ids = [*tokenizer.encode('"née là"'.replace("à", "a")), 2]
    masks = []
    for token_id in ids:
        masks.append(allowed_in(grammar))
        grammar.accept_token(token_id)
    for count in range(1, len(ids) + 1):
        grammar.rollback(count)
        assert (allowed_in(grammar), grammar.accepted) == (masks[-count], len(ids) - count)
        for token_id in ids[len(ids) - count:]:
            grammar.accept_token(token_id)
    with pytest.raises(ValueError, match="cannot take back"):
        grammar.rollback(len(ids) + 1)


@each_backend
@pytest.mark.parametrize("bad", [
    Constraint.regex("("), Constraint.regex("(?=a)b"), Constraint.json_schema("{"), Constraint.json_schema("[]"),
    Constraint.json_schema('{"type": "strnig"}'), Constraint.json_schema('{"properties": 3}'),
    Constraint.json_schema('{"$ref": "#/nowhere"}'), Constraint.json_schema('{"$ref": "#"}'),
    Constraint.json_schema('{"minLength": -1}'), Constraint.json_schema('{"enum": []}'),
    Constraint.json_schema('{"required": "a"}'), Constraint.ebnf("root ::= undefined_rule"), Constraint.ebnf(""),
    Constraint.structural_tag("{}"), Constraint.structural_tag("nothing"),
    Constraint.structural_tag({"structures": TOOLS["structures"], "triggers": []}),
    Constraint.structural_tag({"structures": TOOLS["structures"], "triggers": ["<other"]}),
    Constraint.structural_tag({"structures": TOOLS["structures"], "triggers": ["<c", "<call"]}),
    Constraint.structural_tag({"format": {"type": "no such thing"}}),
    Constraint.structural_tag(TOOLS | TOOLS_FORMAT),
    Constraint.structural_tag({"structures": [{"begin": "<call>", "schema": {"type": 3}, "end": ""}],
                               "triggers": ["<call"]}),
], ids=lambda constraint: f"{constraint.kind}-{constraint.source[:30]}")
def test_every_invalid_input_is_a_clear_error_on_every_backend(
        name: str, bad: Constraint, backends: dict[str, BaseGrammarBackend]) -> None:
    """Museum row 41: a refactoring lost one early return on one backend."""
    with pytest.raises(ConstraintError) as caught:
        backends[name].init_value(bad)
    assert len(str(caught.value)) > 15


@pytest.mark.parametrize("name", ["xgrammar", "llguidance"])
@pytest.mark.parametrize("tools", [TOOLS, TOOLS_FORMAT], ids=["structures", "format"])
def test_a_tool_call_follows_its_schema_and_the_rest_is_free(
        name: str, tools: dict[str, object], backends: dict[str, BaseGrammarBackend], tokenizer: Tokenizer) -> None:
    grammar = backends[name].init_value(Constraint.structural_tag(tools)).grammar
    text = 'I look it up. <call>{"city": "Oslo", "days": 2}</call> Done.'
    assert json.loads(text.split("<call>")[1].split("</call>")[0]) == {"city": "Oslo", "days": 2}
    for token_id in tokenizer.encode(text):
        assert token_id in allowed_in(grammar)
        grammar.accept_token(token_id)
    assert grammar.accepting
    other = grammar.copy()
    for token_id in tokenizer.encode("<call>"):
        other.accept_token(token_id)
    inside = allowed_in(other)
    assert 2 not in inside
    spelled = {tokenizer.vocabulary.token_bytes[token_id] for token_id in inside}
    assert all(b'{"city": "'.startswith(text[:10]) for text in spelled)


def test_a_generated_tool_call_is_valid(make_engine: EngineFactory) -> None:
    """A random model never starts a call of its own accord, so here a call is all there is of the language."""
    schema = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Bergen"]},
                                               "days": {"type": "integer", "minimum": 1, "maximum": 99}},
              "required": ["city", "days"], "additionalProperties": False}
    form = {"type": "triggered_tags", "triggers": ["<call"], "at_least_one": True, "stop_after_first": True,
            "tags": [{"begin": "<call>", "content": {"type": "json_schema", "json_schema": schema}, "end": "</call>"}]}
    constraint = Constraint.structural_tag({"type": "structural_tag", "format": form})
    engine = make_engine(stage="stage5_backend_jump", backend="xgrammar")
    for seed in range(4):
        result = engine.generate_one("x", constraint=constraint,
                                     sampling=SamplingParams(max_new_tokens=80, temperature=2.0, seed=seed))
        assert result.finish_reason == "stop"
        assert result.text.startswith("<call>")
        value = json.loads(result.text.removeprefix("<call>").removesuffix("</call>"))
        assert value["city"] in ("Oslo", "Bergen")
        assert 1 <= value["days"] <= 99
    with pytest.raises(UnsupportedConstraintError, match="xgrammar"):
        make_engine(stage="stage5_backend_jump", backend="llguidance").generate_one("x", constraint=constraint)


def _tag(begin: str = "<a>", end: str | list[str] = "</a>", content: object = None) -> dict[str, object]:
    return {"type": "tag", "begin": begin, "content": content or {"type": "const_string", "value": "x"}, "end": end}


LISTS = _tag("<j>", "</j>", {"type": "json_schema", "json_schema": {"type": "array", "items": {"type": "integer"}}})
FORMS: tuple[dict[str, object], ...] = (
    *({"type": "triggered_tags", "triggers": ["<a", "<j"], "tags": [_tag(), LISTS], **more} for more in (
        {}, {"at_least_one": True}, {"stop_after_first": True}, {"at_least_one": True, "stop_after_first": True},
        {"excludes": ["bye", "no"]})),
    *({"type": "tags_with_separator", "separator": ",", "tags": [_tag(), LISTS], **more} for more in (
        {}, {"at_least_one": True}, {"stop_after_first": True})),
    {"type": "any_text", "excludes": ["no", "b<"]}, _tag(content={"type": "any_text"}), _tag(end=["</a>", ""]),
    {"type": "sequence", "elements": [{"type": "any_text", "excludes": ["<"]}, _tag(), {
        "type": "or", "elements": [LISTS, {"type": "const_string", "value": "hi"}]}]},
    {"type": "sequence", "elements": [{"type": "any_text"}, _tag()]},
    {"type": "star", "content": {"type": "or", "elements": [_tag(), LISTS]}},
    {"type": "repeat", "content": LISTS, "min": 1, "max": 2}, {"type": "plus", "content": _tag()},
    {"type": "optional", "content": LISTS},
    {"type": "sequence", "elements": [{"type": "regex", "pattern": "(hi)*\\d?"},
                                      {"type": "grammar", "grammar": 'root ::= "x" | "(" root ")"'}]},
)
PIECES = ("<a>x</a>", "<a>", "hi", "x", "</a>", "<a", ",", "bye", "<j>[1, 2]</j>", "<j>[]", "</j>", "b<", "<", "no",
          "7", "(x)")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: json.dumps(form)[:70])
def test_each_format_of_a_tag_is_what_the_recogniser_says(form: dict[str, object], tokenizer: Tokenizer,
                                                         backends: dict[str, BaseGrammarBackend]) -> None:
    rng = random.Random(json.dumps(form))
    source = json.dumps({"type": "structural_tag", "format": form})
    recogniser = FormatRecogniser.of(source, is_json_of, lambda pattern, part: re.fullmatch(
        pattern, part, re.ASCII) is not None)
    grammar = backends["xgrammar"].init_value(Constraint.structural_tag(source)).grammar
    single = tokenizer.vocabulary.byte_tokens
    assert recogniser is not None
    for _ in range(150):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 4)))
        walk = grammar.copy()
        try:
            for byte in text.encode():
                walk.accept_token(single[byte])
            got = walk.accepting
        except ConstraintError:
            got = False
        assert got == recogniser.accepts(text), text


def test_the_validity_of_an_answer_in_either_form_is_decided() -> None:
    answer = '<call>{"city": "Oslo", "days": 2}</call> Done.'
    at_least_one = json.loads(json.dumps(TOOLS_FORMAT).replace('"triggers"', '"at_least_one": true, "triggers"'))
    for tools in (TOOLS, TOOLS_FORMAT, at_least_one):
        constraint = Constraint.structural_tag(tools)
        assert is_valid(constraint, answer) is True
        assert is_valid(constraint, answer.replace("2", '"2"')) is False
        assert is_valid(constraint, answer.replace("</call>", "")) is False
    unknown = Constraint.structural_tag({"format": {"type": "token", "token": 3}})
    assert is_valid(unknown, answer) is None


@pytest.mark.parametrize("name", ["xgrammar", "llguidance"])
@pytest.mark.parametrize(("tools", "named"), [
    ({"structures": [{"begin": "<call>", "schema": {"type": "strnig"}, "end": ""}], "triggers": ["<call"]},
     r"structural_tag.structures\[0\].schema/type"),
    ({"format": {"type": "triggered_tags", "triggers": ["<call"], "tags": [{"begin": "<call>", "end": "", "content": {
        "type": "json_schema", "json_schema": {"type": "strnig"}}}]}},
     r"structural_tag.format.tags\[0\].content.json_schema/type"),
    ({"format": {"type": "triggered_tags", "triggers": ["<x"], "tags": [{"begin": "<call>", "end": "", "content": {
        "type": "json_schema", "json_schema": {}}}]}}, r"structural_tag.format.tags\[0\].begin"),
])
def test_an_error_in_a_tag_names_its_place_in_the_form_that_came(
        name: str, tools: dict[str, object], named: str, backends: dict[str, BaseGrammarBackend]) -> None:
    with pytest.raises(ConstraintError, match=named):
        backends[name].init_value(Constraint.structural_tag(tools))


@pytest.mark.parametrize(("leaf", "named"), [
    ({"type": "regex", "pattern": "("}, r"format.elements\[0\].pattern, position 0"),
    ({"type": "grammar", "grammar": 'root ::= "a" root'}, r"format.elements\[0\].grammar, ebnf"),
    ({"type": "json_schema", "json_schema": False}, r"format.elements\[0\].json_schema"),
])
def test_a_part_of_a_format_that_cannot_be_served_is_named(leaf: dict[str, object], named: str,
                                                           backends: dict[str, BaseGrammarBackend]) -> None:
    form = {"type": "sequence", "elements": [leaf]}
    with pytest.raises(ConstraintError, match=named):
        backends["xgrammar"].init_value(Constraint.structural_tag({"format": form}))


@pytest.mark.parametrize("name", ["xgrammar", "llguidance"])
@pytest.mark.parametrize("source", ["root ::= root", 'root ::= "a" root', 'root ::= "b" | x\nx ::= [a-z] x'])
def test_a_grammar_that_never_ends_is_refused_here_too(name: str, source: str,
                                                       backends: dict[str, BaseGrammarBackend]) -> None:
    with pytest.raises(UnsatisfiableConstraintError, match="never be finished"):
        backends[name].init_value(Constraint.ebnf(source))


def test_both_generations_know_the_same_deviations() -> None:
    """They share the library and what is told to it."""
    assert (FOLDER / "deviations.toml").read_bytes() == (FOLDER.parent / "stage4_backends/deviations.toml").read_bytes()


def test_what_a_library_would_drop_is_a_warning_and_a_refusal_when_strict(
        tokenizer: Tokenizer, backends: dict[str, BaseGrammarBackend]) -> None:
    schema = {"type": "object", "properties": {"s": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}},
              "required": ["s"], "additionalProperties": False}
    inside = {"structures": [{"begin": "<call>", "schema": schema, "end": "</call>"}], "triggers": ["<call"]}
    strict = REGISTRY.create("xgrammar", context_over(tokenizer.vocabulary, tokenizer,
                                                      options=StageOptions(strict=True)))
    for constraint in (Constraint.json_schema(schema), Constraint.structural_tag(inside)):
        assert backends["xgrammar"].init_value(constraint).warnings
        with pytest.raises(UnsupportedConstraintError):
            strict.init_value(constraint)


def test_the_mask_of_a_free_row_is_all_ones_in_every_step(tokenizer: Tokenizer) -> None:
    """Museum row 61: two bound rows, then a free one in the place of the second."""
    buffer = MaskBuffer(100, torch.device("cpu"))
    first = buffer.rows(3)
    assert first.shape == (3, 4)
    first.zero_()
    second = buffer.rows(2)
    assert second.data_ptr() == first.data_ptr()
    assert (second == -1).all()
    assert (buffer.rows(5) == -1).all()
    with torch.inference_mode():
        inside = MaskBuffer(100, torch.device("cpu")).rows(1)
    inside[0, 0] = 3
    policy = GrammarManagerPolicy(context_over(tokenizer.vocabulary, tokenizer))
    bound = [ready(policy, f"r{index}", Constraint.regex("[0-9]{4}")) for index in range(2)]
    free = request("free")
    logits = torch.randn(2, tokenizer.vocabulary.width)
    assert policy.constrain(logits, batch_of(*bound), [0, 0]) == [0, 1]
    logits = torch.randn(2, tokenizer.vocabulary.width)
    before = logits.clone()
    assert policy.constrain(logits, batch_of(bound[0], free), [0, 0]) == [0]
    assert torch.equal(logits[1], before[1])


def ready(policy: GrammarManagerPolicy, rid: str, constraint: Constraint):  # type: ignore[no-untyped-def]
    """A request that has its grammar."""
    req = request(rid, constraint)
    answer = policy.admit(req)
    while answer.state is AdmitState.COMPILING:
        answer = next((given for who, given in policy.poll() if who is req), answer)
    assert answer.state is AdmitState.READY, answer.error
    return req


def test_the_policy_masks_what_the_naive_way_masks(tokenizer: Tokenizer) -> None:
    policy = GrammarManagerPolicy(context_over(tokenizer.vocabulary, tokenizer))
    reqs = [ready(policy, f"r{index}", constraint) for index, (constraint, _) in enumerate(GRAMMARS)]
    logits = torch.randn(len(reqs), tokenizer.vocabulary.width)
    naive = logits.clone()
    policy.constrain(logits, batch_of(*reqs), [0] * len(reqs))
    mask = torch.full((len(reqs), 1536), -1, dtype=torch.int32)
    for row, req in enumerate(reqs):
        assert isinstance(req.grammar, BaseGrammarObject)
        req.grammar.fill_vocab_mask(mask, row)
    for row in range(len(reqs)):
        naive_apply_token_bitmask(naive[row:row + 1, :400], mask[row:row + 1])
    assert torch.equal(logits[:, :400], naive[:, :400])


class Moody(WordGrammar):
    """A grammar whose library throws at its second mask or its second token."""

    def __init__(self, where: str) -> None:
        super().__init__(SMALL, [A, B, A])
        self.where = where

    def copy(self) -> Moody:
        return Moody(self.where)

    def fill_vocab_mask(self, mask: torch.Tensor, row: int) -> None:
        if self.where == "mask" and self.accepted == 1:
            raise RuntimeError("the library's parser is broken")
        super().fill_vocab_mask(mask, row)

    def _accept_text(self, token_id: int) -> bool:
        if self.where == "accept" and self.accepted == 1:
            raise RuntimeError("the library's parser is broken")
        return super()._accept_text(token_id)


@pytest.mark.parametrize("where", ["mask", "accept"])
def test_a_library_that_throws_ends_its_own_request_and_no_other(where: str, tokenizer: Tokenizer) -> None:
    """Museum row 46."""
    context = context_over(SMALL, tokenizer)
    policy = GrammarManagerPolicy(context)
    policy.manager._backend = ScriptedBackend(
        context, lambda constraint: Moody(where) if constraint.source == "moody" else WordGrammar(SMALL, [A, B]))
    bad, good = ready(policy, "bad", Constraint.regex("moody")), ready(policy, "good", Constraint.regex("good"))
    for step, token_id in enumerate((A, B)):
        logits = torch.zeros(2, SMALL.width)
        policy.constrain(logits, batch_of(bad, good), [step, step])
        assert torch.isfinite(logits[1]).nonzero().flatten().tolist() == [token_id]
        results = policy.accept(batch_of(bad, good), [SampledRow(req, (token_id,)) for req in (bad, good)])
        assert (results[1].n_accepted, results[1].error) == (1, None)
    assert results[0].n_accepted == 0
    assert "parser is broken" in str(results[0].error)
    assert "bad" in str(results[0].error)
    policy.release(bad, "error")
    policy.release(bad, "error")


def test_a_grammar_with_slow_masks_is_found_and_ended(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    class Slow(WordGrammar):
        def copy(self) -> Slow:
            return Slow(SMALL, self.word)

        def fill_vocab_mask(self, mask: torch.Tensor, row: int) -> None:
            end = time.thread_time() + 0.06
            while time.thread_time() < end:
                pass
            super().fill_vocab_mask(mask, row)

    context = context_over(SMALL, tokenizer)
    policy = GrammarManagerPolicy(context)
    policy.manager._backend = ScriptedBackend(context, lambda constraint:
                                              (Slow if constraint.source == "slow" else WordGrammar)(SMALL, [A] * 9))
    slow, quick = ready(policy, "slow", Constraint.regex("slow")), ready(policy, "quick", Constraint.regex("quick"))
    ended = None
    for step in range(6):
        policy.constrain(torch.zeros(2, SMALL.width), batch_of(slow, quick), [step, step])
        results = policy.accept(batch_of(slow, quick), [SampledRow(req, (A,)) for req in (slow, quick)])
        assert results[1].error is None
        if results[0].error is not None:
            ended = results[0].error
            break
    assert ended is not None
    assert "longer than 0.05 s" in str(ended)


def _calls(tree: ast.AST, inside: str = "") -> list[tuple[str, str]]:
    """(function it stands in, method) of every call of one of the three jump methods, and every mention of one."""
    found = []
    for node in ast.iter_child_nodes(tree):
        name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else inside
        if isinstance(node, ast.Attribute) and node.attr in JUMPS:
            found.append((inside, node.attr))
        if isinstance(node, ast.Constant) and node.value in JUMPS:
            found.append((inside, str(node.value)))
        found += _calls(node, name)
    return found


def test_the_three_jump_methods_exist_and_nothing_calls_them() -> None:
    """As upstream since 935cda944b (#4032). The reasoner's forward is no caller: it stands in the same method."""
    assert set(vars(BaseGrammarObject)) >= JUMPS
    for folder in (FOLDER, Path(stages.__file__).parents[1] / "shared_runtime"):
        for path in sorted(folder.rglob("*.py")):
            for inside, method in _calls(ast.parse(path.read_text(encoding="utf-8"))):
                assert inside == method, f"{path.name}: {inside} uses {method}"


def test_the_scheduler_has_no_jump_and_nobody_leaves_the_batch(tokenizer: Tokenizer) -> None:
    tree = ast.parse((FOLDER / "decoder.py").read_text(encoding="utf-8"))
    before_decode, = [node for node in ast.walk(tree)
                      if isinstance(node, ast.FunctionDef) and node.name == "before_decode"]
    assert [ast.unparse(statement) for statement in before_decode.body[1:]] == ["return policy.Requeue()"]
    assert STAGE.capabilities.jump_forward == ("none", "draft", "force"), "by the backend, never by the scheduler"
    imports = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "outlines_jump_forward" not in imports


def test_what_this_generation_could_do_is_claimed() -> None:
    can = STAGE.capabilities
    assert (can.overlap, can.overlaps_by_default) == ("delayed", True)
    assert (can.speculation, can.tensor_parallel) == (True, True)
    assert (can.async_compile, can.reasoning, can.backends[0]) == (True, True, "xgrammar")


def test_an_unknown_backend_is_an_error_that_names_those_there_are(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="xgrammar, outlines, llguidance"):
        GrammarManagerPolicy(context_over(SMALL, tokenizer, backend="none"))
