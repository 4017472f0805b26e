"""`jumpforward check`: texts against masks, case files good and hostile, verdicts, exit codes, JSON."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import get_args

import jsonschema
import pytest
import torch
from torch import Tensor

from jumpforward.cli import main
from jumpforward.result_json import schema_text
from shared_runtime import policy
from shared_runtime.conformance.case_file import MAX_LINE_BYTES, BadLine, Case, fingerprint, parse_case, read_cases
from shared_runtime.conformance.deviations import About, Deviation, parse_deviations, shipped_deviations
from shared_runtime.conformance.target import Target, all_targets, targets_of
from shared_runtime.conformance.verdict import Judge, Verdict
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError
from shared_runtime.schedule_batch import ScheduleBatch
from shared_runtime.tokenizer import Tokenizer
from stages import get_stage

Capture = pytest.CaptureFixture[str]


def check(capsys: Capture, *words: str, code: int = 0) -> list[dict[str, object]]:
    """The JSON rows of a call, held to their schema, and its exit code."""
    assert main(["check", "--json", *words]) == code
    shown = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(json.loads(schema_text("check"))).validate(shown)
    assert isinstance(shown, list)
    return shown


def outcomes(row: dict[str, object]) -> list[tuple[object, object]]:
    texts = row["texts"]
    assert isinstance(texts, list)
    return [(one["got"], one["byte"]) for one in texts]


@pytest.fixture
def stage_1(tmp_path: Path, embedded_folder: Path) -> list[str]:
    return ["--stage", "1", "--model", str(embedded_folder)]


def case_file(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "cases.jsonl"
    path.write_bytes(b"\n".join(
        line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines))
    return path


# one grammar


def test_each_text_is_accepted_rejected_at_a_byte_or_incomplete(stage_1: list[str], capsys: Capture) -> None:
    texts = ["12é", "12", "123x", "12345é", "", "1\x042", "12\udce9", "12é!"]
    words = [word for text in texts[:-2] + texts[-1:] for word in ("--text", text)]
    row, = check(capsys, *stage_1, "--regex", "[0-9]{2,4}(é|ü)", *words)
    assert outcomes(row) == [("accepted", None), ("incomplete", 2), ("rejected", 3), ("rejected", 4),
                             ("incomplete", 0), ("rejected", 1), ("rejected", 4)]
    assert row["verdict"] == "right"


def test_a_rejection_names_the_byte_even_inside_a_token(stage_1: list[str], capsys: Capture) -> None:
    """` captain` is one token of the canonical spelling; only its last byte is wrong."""
    row, = check(capsys, *stage_1, "--regex", "the captai!", "--text", "the captain")
    assert outcomes(row) == [("rejected", 10)]


def test_the_empty_text_can_be_all_there_is(stage_1: list[str], capsys: Capture) -> None:
    row, = check(capsys, *stage_1, "--regex", "(n/a)?", "--text", "", "--text", "n/a")
    assert outcomes(row) == [("accepted", None), ("accepted", None)]


def test_other_spellings_agree_in_a_sound_stage(stage_1: list[str], capsys: Capture) -> None:
    row, = check(capsys, *stage_1, "--choice", "captain", "--choice", "天气", "--all-tokenizations",
                 "--text", "captain", "--text", "天气", "--text", "capt", "--text", "天")
    assert outcomes(row) == [("accepted", None), ("accepted", None), ("incomplete", 4), ("incomplete", 3)]
    assert row["verdict"] == "right"


def test_a_grammar_error_is_an_answer_with_a_position(stage_1: list[str], capsys: Capture) -> None:
    row, = check(capsys, *stage_1, "--regex", "ab(c", "--text", "abc")
    error = row["error"]
    assert isinstance(error, dict)
    assert (row["verdict"], row["texts"], error["type"], error["offset"]) == (
        "clear_error", [], "GrammarSyntaxError", 2)


def test_a_kind_that_the_stage_lacks_names_the_first_that_has_it(stage_1: list[str], capsys: Capture) -> None:
    row, = check(capsys, *stage_1, "--json-schema", "{}", "--text", "1")
    assert row["verdict"] == "not_applicable"
    assert "--stage 3" in str(row["error"])


def test_all_stages_and_backends_answer(embedded_folder: Path, capsys: Capture) -> None:
    rows = check(capsys, "--stage", "all", "--model", str(embedded_folder), "--choice", "yes", "--text", "yes")
    assert [(row["stage"], row["backend"]) for row in rows] == [
        (target.spec.id, target.backend) for target in all_targets()]
    assert all(outcomes(row) == [("accepted", None)] for row in rows)


def test_what_a_person_reads_names_text_byte_and_reason(stage_1: list[str], capsys: Capture) -> None:
    assert main(["check", *stage_1, "--regex", "[0-9]{2}", "--text", "1x", "--text", "10"]) == 0
    shown = capsys.readouterr()
    assert "rejected at byte 1  '1x'" in shown.out
    assert "the grammar allows '0', '1'" in shown.out
    assert "accepted  '10'" in shown.out
    assert "1 verdicts: 1 right" in shown.err


def test_stages_that_agree_share_a_part_of_the_page(embedded_folder: Path, capsys: Capture) -> None:
    words = ["check", "--model", str(embedded_folder), "--text", "{}"]
    assert main([*words, "--choice", "{}"]) == 0
    page = capsys.readouterr().out
    assert page.splitlines()[0] == "stage " + ", ".join(f"{one.spec.id} {one.backend}" for one in all_targets())
    assert page.count("accepted") == 1
    assert main([*words, "--json-object"]) == 0
    page = capsys.readouterr().out
    assert "stage 4 xgrammar, 4 llguidance, 5 xgrammar, 5 llguidance\n  accepted  '{}'\n" in page
    assert page.count("not in this stage") == len(all_targets()) - 4


@pytest.mark.parametrize(("words", "named"), [
    ([], "nothing to check"), (["--regex", "a"], "--text"), (["--text", "a"], "nothing to check"),
    (["--cases", "x.jsonl", "--regex", "a"], "--cases"), (["--cases", "no-such.jsonl"], "no-such.jsonl"),
    (["--stage", "9", "--regex", "a", "--text", "a"], "9"),
    (["--stage", "1", "--backend", "nobody", "--regex", "a", "--text", "a"], "nobody"),
    (["--regex", "a", "--choice", "b", "--text", "a"], "--regex and --choice"),
])
def test_a_wrong_command_line_leaves_with_2(words: list[str], named: str, embedded_folder: Path,
                                            capsys: Capture) -> None:
    assert main(["check", "--model", str(embedded_folder), *words]) == 2
    shown = capsys.readouterr()
    assert named in shown.err.splitlines()[-1]
    assert shown.out == ""


# case files


def test_a_case_file_gives_a_verdict_for_each_case_stage_and_backend(
        stage_1: list[str], tmp_path: Path, capsys: Capture) -> None:
    path = case_file(
        tmp_path,
        {"id": "a", "kind": "regex", "grammar": "[ab]+", "accept": ["ab"], "reject": ["", "c"], "expect": "ok",
         "colour": "an unknown field"},
        {"id": "b", "kind": "regex", "grammar": "[ab]+", "accept": ["abc"]},
        {"id": "c", "kind": "regex", "grammar": "(", "expect": "ok_or_error"},
        {"id": "d", "kind": "regex", "grammar": "(", "expect": "error"},
        {"id": "e", "kind": "regex", "grammar": "(", "expect": "ok"},
        {"id": "f", "kind": "regex", "grammar": "a", "expect": "error"},
        {"id": "g", "kind": "behaviour", "grammar": {"regex": "a"}},
        {"id": "h", "kind": "regex", "grammar": "a", "stages": [4, 5]},
        {"id": "i", "kind": "json_object", "grammar": None, "accept": ["{}"]},
        {"id": "j", "kind": "choice", "grammar": ["ja", "天"], "accept": ["天"], "reject": ["j"]},
        {"id": "k", "kind": "regex", "grammar": "a|b", "expect": "error_preferred", "accept": ["a"]},
        {"id": "l", "kind": "regex", "grammar": "ab?", "accept": ["a"], "optional_accept": ["ab", "abc"]})
    rows = check(capsys, *stage_1, "--cases", str(path), code=1)
    assert {str(row["id"]): row["verdict"] for row in rows} == {
        "a": "right", "b": "WRONG", "c": "clear_error", "d": "right", "e": "WRONG", "f": "WRONG",
        "g": "not_applicable", "h": "not_applicable", "i": "not_applicable", "j": "right", "k": "right", "l": "right"}


def test_a_file_where_all_is_well_leaves_with_0(stage_1: list[str], tmp_path: Path, capsys: Capture) -> None:
    path = case_file(tmp_path, {"kind": "regex", "grammar": "a", "accept": ["a"]})
    row, = check(capsys, *stage_1, "--cases", str(path))
    assert (row["id"], row["verdict"]) == ("line-1", "right")


BAD_LINES: list[tuple[bytes, str]] = [
    (b"{", "not JSON"), (b"\xff\xfe", "not UTF-8 at byte 0"), (b"[1]", "not a list"), (b'"x"', "not a text"),
    (b'{"kind": "regexp", "grammar": "a"}', "kind"), (b'{"grammar": "a"}', "kind"),
    (b'{"kind": "regex"}', "grammar"), (b'{"kind": "regex", "grammar": 7}', "grammar"),
    (b'{"kind": "ebnf", "grammar": null}', "grammar"), (b'{"kind": "json_schema", "grammar": 3}', "grammar"),
    (b'{"kind": "choice", "grammar": []}', "choice"), (b'{"kind": "choice", "grammar": "a"}', "grammar"),
    (b'{"kind": "regex", "grammar": "a", "accept": "a"}', "accept"),
    (b'{"kind": "regex", "grammar": "a", "reject": [1]}', "reject"),
    (b'{"kind": "regex", "grammar": "a", "expect": "maybe"}', "expect"),
    (b'{"kind": "regex", "grammar": "a", "stages": [6]}', "stages"),
    (b'{"kind": "regex", "grammar": "a", "stages": [true]}', "stages"),
    (b'{"kind": "regex", "grammar": "a", "id": ""}', "id"), (b'{"kind": "regex", "grammar": "a", "id": 5}', "id"),
    (b'{"kind": ["regex"], "grammar": "a"}', "kind"), (b"[" * 100_000, "cannot be read"),
]


@pytest.mark.parametrize(("line", "named"), BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_line_that_is_no_case_says_why(line: bytes, named: str) -> None:
    found = parse_case(line, 12)
    assert isinstance(found, BadLine)
    assert found.line == 12
    assert named in found.message


def test_bad_lines_are_named_and_the_others_go_on(stage_1: list[str], tmp_path: Path, capsys: Capture) -> None:
    good = {"id": "good", "kind": "regex", "grammar": "a", "accept": ["a"]}
    path = case_file(tmp_path, b"\xef\xbb\xbf" + json.dumps(good).encode(), b"not json", b"", good, b'{"kind": 1}')
    assert main(["check", *stage_1, "--json", "--cases", str(path)]) == 2
    shown = capsys.readouterr()
    assert [row["id"] for row in json.loads(shown.out)] == ["good", "good"]
    assert "error: line 2: not JSON" in shown.err
    assert "warning: line 4: the id 'good' is that of line 1" in shown.err
    assert "error: line 5: kind" in shown.err
    assert "2 lines cannot be used" in shown.err


def test_an_endless_line_is_one_bad_line(tmp_path: Path) -> None:
    path = case_file(tmp_path, b'{"kind": "' + b"x" * (MAX_LINE_BYTES + 5), b'{"kind": "regex", "grammar": "a"}')
    first, second = read_cases(path)
    assert isinstance(first, BadLine)
    assert "longer than" in first.message
    assert isinstance(second, Case)
    assert second.line == 2


def test_an_empty_file_is_a_mistake(stage_1: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert main(["check", *stage_1, "--cases", str(case_file(tmp_path))]) == 2
    assert "no case" in capsys.readouterr().err


def test_odd_unicode_survives_the_way_in_and_out(stage_1: list[str], tmp_path: Path, capsys: Capture) -> None:
    texts = ["e\u0301", "\u00e9", "👨\u200d👩\u200d👧", "\ufeffa", "\u202eabc", "a\u0000b", "\U0010ffff",
             "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "\r\n", "\x85"]
    path = case_file(tmp_path, {"id": "ö\n\x1b[2J", "kind": "choice", "grammar": texts, "accept": texts,
                                "reject": ["e", "\ud800", "a\udfffb", "👨"]})
    row, = check(capsys, *stage_1, "--cases", str(path), "--all-tokenizations")
    assert row["id"] == "ö\n\x1b[2J"
    assert row["verdict"] == "right"
    assert main(["check", *stage_1, "--cases", str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_huge_texts_and_grammars_are_answered(stage_1: list[str], tmp_path: Path, capsys: Capture) -> None:
    path = case_file(
        tmp_path,
        {"id": "long", "kind": "regex", "grammar": "[a-z]*", "accept": ["ab" * 5_000], "reject": ["ab" * 999 + "!"]},
        {"id": "many", "kind": "choice", "grammar": [f"item {i}" for i in range(2_000)], "accept": ["item 1999"],
         "reject": ["item 2000"]},
        {"id": "bomb", "kind": "regex", "grammar": "((a{1,90}){1,90}){1,90}", "expect": "ok_or_error", "accept": ["a"]})
    rows = check(capsys, *stage_1, "--cases", str(path))
    assert [row["verdict"] for row in rows] == ["right", "right", "clear_error"]


# verdicts


@pytest.fixture(scope="module")
def tokenizer(embedded_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(embedded_folder)


def broken(change: object) -> Target:
    """Stage 1 with one thing wrong: its masks pass through `change`, or admission raises it."""
    spec = get_stage(1)

    def build(context: policy.StageContext) -> policy.StagePolicy:
        made = spec.build(context)
        constrain = made.constrain

        def changed(logits: Tensor, batch: ScheduleBatch, positions: list[int]) -> list[int]:
            rows = constrain(logits, batch, positions)
            if isinstance(change, Exception):
                raise change
            assert callable(change)
            change(logits, context)
            return rows

        made.constrain = changed  # type: ignore[method-assign, assignment]  # the one thing wrong
        return made

    return Target(replace(spec, build=build), "fsm")


CASE = Case(line=1, id="case", kind="choice", constraint=Constraint.choice(["captain", "cap"]),
            accept=("captain", "cap"), reject=("ca", "capt"))


def only_long_tokens(logits: Tensor, context: policy.StageContext) -> None:
    """Forbid every one-byte token where a longer one is allowed: a mask that holds fewer spellings."""
    single = torch.tensor(sorted(context.vocabulary.byte_tokens.values()))
    kept = torch.isfinite(logits)
    kept[:, single] = False
    if bool(kept.any()):
        logits[:, single] = -torch.inf


def everything(logits: Tensor, context: policy.StageContext) -> None:
    logits.zero_()


def nothing(logits: Tensor, context: policy.StageContext) -> None:
    logits.fill_(-torch.inf)


@pytest.mark.parametrize(("change", "all_tokenizations", "verdict"), [
    (only_long_tokens, False, "right"), (only_long_tokens, True, "WRONG"), (everything, False, "WRONG"),
    (nothing, False, "WRONG"), (RuntimeError("boom"), False, "WRONG"),
])
def test_a_broken_stage_is_found(change: object, all_tokenizations: bool, verdict: Verdict,
                                 tokenizer: Tokenizer) -> None:
    judge = Judge(tokenizer, all_tokenizations=all_tokenizations)
    found = judge.judge(CASE, broken(change))
    assert found.verdict == verdict
    if isinstance(change, Exception):
        assert found.error == {"type": "RuntimeError", "message": "the stage failed: boom", "offset": None}


def test_a_listed_deviation_is_named_and_covers_nothing_else(tokenizer: Tokenizer) -> None:
    row = Deviation(case=CASE.fingerprint, stages=(1,), backend="fsm", about="spellings", library="none",
                    version="1", reproducer="print()", upstream="https://example.org/1", what="only long tokens")
    judge = Judge(tokenizer, (row,), all_tokenizations=True)
    found = judge.judge(CASE, broken(only_long_tokens))
    assert found.verdict == "listed_deviation"
    assert found.deviation == "only long tokens (https://example.org/1)"
    assert judge.judge(CASE, broken(everything)).verdict == "WRONG"
    other = replace(CASE, constraint=Constraint.choice(["captain", "cap", "x"]))
    assert judge.judge(other, broken(only_long_tokens)).verdict == "WRONG"


def test_a_stage_that_denies_a_kind_must_refuse_it(tokenizer: Tokenizer) -> None:
    spec = get_stage(1)
    denies = replace(spec, capabilities=replace(spec.capabilities, constraints=frozenset({"regex"})))
    assert Judge(tokenizer).judge(CASE, Target(denies, "fsm")).verdict == "WRONG"


def test_a_stuck_grammar_counts_as_refused_only_where_it_must_be(tokenizer: Tokenizer) -> None:
    case = replace(CASE, accept=(), expect="error")
    assert Judge(tokenizer).judge(case, broken(nothing)).verdict == "clear_error"
    assert Judge(tokenizer).judge(case, Target(get_stage(1), "fsm")).verdict == "WRONG"


def test_a_fingerprint_is_the_grammars_alone() -> None:
    assert CASE.fingerprint == replace(CASE, id="x", accept=()).fingerprint == fingerprint(Constraint.choice(
        ["captain", "cap"]))
    assert fingerprint(Constraint.regex("a")) != fingerprint(Constraint.ebnf("a"))


# the list that ships


def test_the_shipped_list_can_be_read_and_says_where_each_row_is_told() -> None:
    for row in shipped_deviations():
        assert row.upstream.startswith("https://")
        assert row.what
        compile(row.reproducer, row.library, "exec")
        assert row.about in get_args(About)
        assert {target.backend for target in all_targets()} >= {row.backend}


def test_a_list_with_a_column_missing_is_refused() -> None:
    with pytest.raises(ConfigError, match="deviation 1"):
        parse_deviations('[[deviation]]\ncase = "a"\n')
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_deviations("[[")


def test_targets_are_named_by_number_name_or_all() -> None:
    assert targets_of("1", None) == targets_of("stage1_copied_fsm", None) == targets_of("1", "fsm")
    assert targets_of("all", None) == all_targets()
    with pytest.raises(ConfigError, match="no backend"):
        targets_of("all", "nobody")
