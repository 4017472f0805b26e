"""The command line: what a person types, what comes back, and with which exit code."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import stages
from jumpforward.cli import main
from jumpforward.compare_command import variants
from jumpforward.console import ProgressLine, TextWriter, visible
from jumpforward.decoding_options import DecodingOptions, GrammarOptions
from jumpforward.measure import Reading, measure_settings, recommend, thread_counts
from jumpforward.option_groups import expand_groups
from jumpforward.options import ConstraintOptions, PromptOptions, SamplingOptions
from jumpforward.result_json import schema_text
from jumpforward.validity import is_valid
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import ConfigError, GrammarSyntaxError
from shared_runtime.policy import StageOptions
from shared_runtime.trace import StepRecord

ESCAPE = re.compile(r"\x1b\[[0-9;]*[mK]")
Capture = pytest.CaptureFixture[str]


class Terminal(io.StringIO):
    """A stream that a person looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def model(tiny_model: Path) -> list[str]:
    return ["--model", str(tiny_model), "--max-new-tokens", "12"]


@pytest.fixture(autouse=True)
def plain_terminal_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def in_a_process(code: str, *, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


# start-up


def test_help_comes_without_loading_torch() -> None:
    done = in_a_process("import sys; from jumpforward.cli import main; code = main(['--help']);"
                        "print(code, sorted(set(sys.modules) & {'torch', 'numpy', 'tokenizers'}))")
    assert done.stdout.splitlines()[-1] == "0 []"
    for command in ("run", "compare", "check", "diff", "stages", "doctor"):
        assert re.search(rf"│ {command} +", done.stdout)


def test_a_usage_error_comes_without_loading_torch() -> None:
    done = in_a_process("import sys; from jumpforward.cli import main;"
                        "print(main(['run', 'x', '--regex', 'a', '--choice', 'b']), 'torch' in sys.modules)")
    assert done.stdout.split() == ["2", "False"]


@pytest.mark.slow
def test_stage_1_runs_without_any_library_that_replaced_it(tiny_model: Path) -> None:
    libraries = {"transformers", "xgrammar", "llguidance", "outlines", "outlines_core"}
    done = in_a_process(
        "import sys; from jumpforward.cli import main;"
        f"print(main(['run', 'x', '--model', {str(tiny_model)!r}, '--choice', 'yes']));"
        f"print(sorted(set(sys.modules) & {libraries!r}))")
    assert done.stdout.splitlines() == ["yes", "0", "[]"], done.stderr


@pytest.mark.parametrize("command", ["run", "compare"])
def test_the_options_of_a_request_are_the_same_everywhere(command: str, capsys: Capture) -> None:
    assert main([command, "--help"]) == 0
    shown = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert shown >= {
        "--model", "--load-format", "--dtype", "--device", "--threads", "--exact", "--regex", "--choice",
        "--json-schema", "--ebnf", "--structural-tag", "--json-object", "--max-new-tokens", "--temperature",
        "--top-k", "--top-p", "--min-p", "--seed", "--n", "--stop", "--ignore-eos", "--logprobs", "--system",
        "--no-chat", "--json", "--backend", "--whitespace", "--strict", "--no-jump", "--min-jump-bytes",
        "--think-end"}


def test_the_version_is_that_of_the_package(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"jumpforward \d+\.\d+\.\d+\n", capsys.readouterr().out)


# errors


@pytest.mark.parametrize(("words", "code", "named"), [
    (["run"], 2, "prompt"),
    (["nonsense"], 2, "nonsense"),
    (["run", "x", "--nope"], 2, "--nope"),
    (["run", "x", "--dtype", "int8"], 2, "--dtype"),
    (["run", "x", "--regex", "a", "--choice", "b"], 2, "--regex and --choice"),
    (["run", "x", "--json-object", "--json-schema", "{}"], 2, "--json-schema and --json-object"),
    (["run", "x", "--system", "s", "--no-chat"], 2, "--system and --no-chat"),
    (["run", "x", "--json-schema", "no-such-file.json"], 2, "no-such-file.json"),
    (["run", "x", "--ebnf", "no-such-file.ebnf"], 2, "no-such-file.ebnf"),
    (["run", "x\udcff"], 2, "PROMPT"),
    (["run", "x", "--regex", "\udcff"], 2, "--regex"),
    (["run", "x", "--stage", "9"], 2, "9"),
    (["run", "x", "--json-schema", "{"], 1, "position 1"),
    (["run", "x", "--top-p", "3"], 1, "top_p"),
    (["run", "x", "--model", "/no/such/folder"], 1, "/no/such/folder"),
    (["compare", "x", "--n", "2"], 2, "--n"),
    (["compare", "x", "--backend", "nobody"], 2, "nobody"),
    (["run", "x", "--backend", "nobody"], 2, "nobody"),
    (["run", "x", "--min-jump-bytes", "0"], 2, "min_jump_bytes"),
    (["run", "x", "--whitespace", "wide"], 2, "--whitespace"),
])
def test_an_error_is_one_line_that_names_the_thing(words: list[str], code: int, named: str, capsys: Capture) -> None:
    assert main(words) == code
    shown = capsys.readouterr()
    last = shown.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert named in last
    assert "Traceback" not in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(("pattern", "code"), [("(", 1), ("a(?=b)", 1)])
def test_a_request_error_leaves_with_1(pattern: str, code: int, model: list[str], capsys: Capture) -> None:
    assert main(["run", "x", *model, "--regex", pattern]) == code
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: position ")


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize("wrong", [["--regex", "("], ["--nope"], ["--top-p", "3"]])
def test_with_json_an_error_is_json_of_the_schema(command: str, wrong: list[str], model: list[str],
                                                  capsys: Capture) -> None:
    assert main([command, "x", "--json", *model, *wrong]) in (1, 2)
    shown = json.loads(capsys.readouterr().out)
    jsonschema.validate(shown, json.loads(schema_text(command)))
    assert set(shown) == {"error"}


# run


def test_piped_output_is_the_text_alone(model: list[str], capsys: Capture) -> None:
    assert main(["run", "x", *model, "--regex", "[a-f]{3}[0-9]"]) == 0
    shown = capsys.readouterr()
    assert re.fullmatch(r"[a-f]{3}[0-9]\n", shown.out)
    assert "forward passes" in shown.err
    assert ": valid" in shown.err
    assert "\x1b" not in shown.out + shown.err


def test_run_json_follows_its_schema(model: list[str], capsys: Capture) -> None:
    words = ["run", "x", "--json", *model, "--n", "2", "--seed", "5", "--temperature", "1", "--top-logprobs", "2",
             "--prompt-logprobs", "--regex", "[a-f]{3}"]
    assert main(words) == 0
    shown = json.loads(capsys.readouterr().out)
    jsonschema.validate(shown, json.loads(schema_text("run")))
    assert [answer["index"] for answer in shown["answers"]] == [0, 1]
    for answer in shown["answers"]:
        assert re.fullmatch("[a-f]{3}", answer["text"])
        assert answer["valid"] is True
        assert len(answer["origins"]) == len(answer["token_ids"]) == len(answer["logprobs"])
        assert answer["counts"]["forward_passes"] == answer["metrics"]["forward_passes"]


@pytest.mark.slow
def test_answers_of_one_request_are_not_mixed(model: list[str], capsys: Capture) -> None:
    assert main(["run", "x", *model, "--n", "3", "--seed", "1", "--temperature", "1", "--regex", "[a-f]{4}"]) == 0
    shown = capsys.readouterr()
    assert len(re.findall(r"^\[answer \d of 3\]\n[a-f]{4}\n", shown.out, flags=re.MULTILINE)) == 3
    assert shown.err.count("forward passes") == 3


@pytest.mark.slow
def test_a_cut_answer_is_called_not_valid(model: list[str], capsys: Capture) -> None:
    assert main(["run", "x", *model[:2], "--max-new-tokens", "2", "--regex", "[a-f]{40}"]) == 0
    shown = capsys.readouterr().err
    assert "finish reason   length" in shown
    assert ": not valid" in shown


def test_trace_writes_one_json_object_a_step(model: list[str], tmp_path: Path, capsys: Capture) -> None:
    trace = tmp_path / "trace.jsonl"
    assert main(["run", "x", *model, "--choice", "yes", "--trace", str(trace), "--json"]) == 0
    passes = json.loads(capsys.readouterr().out)["answers"][0]["counts"]["forward_passes"]
    lines = trace.read_text(encoding="utf-8").splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert len(lines) >= passes


def test_ctrl_c_aborts_the_request_and_shows_what_there_was(model: list[str], capsys: Capture,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    step, turns = Engine.step, []

    def step_and_interrupt(engine: Engine) -> StepRecord | None:
        turns.append(1)
        if len(turns) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return step(engine)

    monkeypatch.setattr(Engine, "step", step_and_interrupt)
    before = signal.getsignal(signal.SIGINT)
    assert main(["run", "x", *model[:2], "--max-new-tokens", "500", "--ignore-eos"]) == 130
    shown = capsys.readouterr()
    assert "finish reason   abort" in shown.err
    assert shown.err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in shown.err
    assert len(turns) < 20
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_loading_ends_without_a_traceback(model: list[str], capsys: Capture,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_engine: Engine, *_arguments: object, **_settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "__init__", interrupted)
    assert main(["run", "x", *model]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"


@pytest.mark.slow
@pytest.mark.model
def test_ctrl_c_from_a_terminal_ends_the_process_cleanly(embedded_folder: Path) -> None:
    words = [sys.executable, "-m", "jumpforward", "run", "--model", str(embedded_folder), "--ignore-eos",
             "--max-new-tokens", "2000", "Tell me a long story."]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"finish reason   abort" in err
    assert b"Traceback" not in err


@pytest.mark.parametrize("words", [["stages"], ["stages", "--json"], ["--version"]])
def test_a_reader_that_goes_away_is_no_error(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = in_a_process(f"import sys; from jumpforward.cli import main; sys.exit(main({words!r}))", stdout=writer)
    finally:
        os.close(writer)
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_a_stream(tiny_model: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = ["run", "x", "--model", str(tiny_model), "--regex", "[a-f]{30}"]
    try:
        done = in_a_process(f"import sys; from jumpforward.cli import main; sys.exit(main({words!r}))", stdout=writer)
    finally:
        os.close(writer)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_stream_without_unicode_still_gets_its_text(tiny_model: Path) -> None:
    words = ["compare", "x", "--model", str(tiny_model), "--choice", "naïve 天气"]
    done = in_a_process(
        "import io, sys; sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='ascii');"
        f"from jumpforward.cli import main; sys.exit(main({words!r}))")
    assert done.returncode == 0, done.stderr
    assert r"na\xefve \u5929\u6c14" in done.stdout
    assert "#" in done.stdout


# colours and progress


def test_colour_tells_sampled_from_forced_and_changes_no_text() -> None:
    stream = Terminal()
    writer = TextWriter(stream)
    for text, origins in (("ab", ["sampled"]), ("cd", ["sampled", "forced"]), ("ef", ["jumped"])):
        writer.write(text, origins)
    writer.end_line()
    colours = re.findall(r"(\x1b\[[0-9;]+m)(ab|cd|ef)\x1b\[0m", stream.getvalue())
    assert [text for _, text in colours] == ["ab", "cd", "ef"]
    assert colours[0][0] != colours[1][0] == colours[2][0]
    assert ESCAPE.sub("", stream.getvalue()) == "abcdef\n"


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_switched_off(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    stream = Terminal()
    TextWriter(stream).write("ab", ["forced"])
    assert stream.getvalue() == "ab"


def test_a_model_cannot_send_commands_to_the_terminal() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        TextWriter(stream).write("a\x1b[2Jb\x07\n")
    assert terminal.getvalue() == "a␛[2Jb␇\n"
    assert pipe.getvalue() == "a\x1b[2Jb\x07\n"
    assert visible("tab\tline\n") == "tab\tline\n"


def test_progress_is_one_line_on_a_terminal_and_one_per_piece_of_work_without() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        progress = ProgressLine(stream)
        for done in range(101):
            progress("convert", done, 100)
        progress.clear()
    assert "\n" not in terminal.getvalue()
    assert "convert ... 100 %" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert pipe.getvalue() == "convert ...\n"


# compare and stages


def test_compare_json_follows_its_schema(model: list[str], capsys: Capture) -> None:
    assert main(["compare", "x", "--json", *model, "--regex", "[a-f]{3}"]) == 0
    shown = json.loads(capsys.readouterr().out)
    jsonschema.validate(shown, json.loads(schema_text("compare")))
    assert [row["stage"] for row in shown["rows"]] == [spec.id for spec in stages.all_stages()]
    for row in shown["rows"]:
        assert row["valid"] is True
        assert row["counts"]["forward_passes"] >= 1
        assert row["error"] is None


def test_compare_without_a_prompt_asks_for_a_ships_card(model: list[str], capsys: Capture) -> None:
    assert main(["compare", *model]) == 0
    shown = capsys.readouterr().out
    assert "Invent a sailing ship" in shown
    assert "forward passes" in shown


@pytest.mark.slow
def test_a_stage_that_refuses_is_a_row_and_the_others_are_served(model: list[str], capsys: Capture,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    first = stages.get_stage(1)
    monkeypatch.setattr(stages, "all_stages", lambda: (first, replace(first, id=5, name="nowhere")))
    monkeypatch.setattr(stages, "_PACKAGES", {1: "stage1_copied_fsm"})
    assert main(["compare", "x", "--json", *model, "--choice", "yes"]) == 0
    shown = json.loads(capsys.readouterr().out)
    jsonschema.validate(shown, json.loads(schema_text("compare")))
    served, refused = shown["rows"]
    assert (served["text"], served["error"]) == ("yes", None)
    assert refused["text"] is None
    assert "no stage 5" in refused["error"]["message"]
    assert main(["compare", "x", *model, "--choice", "yes"]) == 0
    assert "refused: stage: there is no stage 5" in capsys.readouterr().out


def test_what_no_stage_can_serve_is_an_error(model: list[str], capsys: Capture,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    first = stages.get_stage(1)
    monkeypatch.setattr(stages, "all_stages", lambda: (first,))
    assert main(["compare", "x", *model, "--json-object"]) == 1
    assert "json_object" in capsys.readouterr().err


def test_compare_takes_the_backend_asked_for_where_a_stage_has_it() -> None:
    specs = stages.all_stages()
    for wanted in {name for spec in specs for name in spec.capabilities.backends}:
        for variant, spec in zip(variants(specs, wanted), specs, strict=True):
            has = wanted in spec.capabilities.backends
            assert variant.backend == (wanted if has else spec.capabilities.backends[0])
    with pytest.raises(ConfigError, match="nobody"):
        variants(specs, "nobody")


def test_the_settings_of_a_stage_come_from_the_command_line() -> None:
    given = GrammarOptions(whitespace="any", strict=True).stage_options()
    assert (given.whitespace, given.strict) == ("any", True)
    left_alone = GrammarOptions().stage_options(whitespace="any", strict=True)
    assert (left_alone.whitespace, left_alone.strict) == ("any", True)
    assert GrammarOptions(strict=False).stage_options(strict=True).strict is False
    assert DecodingOptions().complete(StageOptions()) == StageOptions()
    jumps = DecodingOptions(no_jump=True, min_jump_bytes=7, think_end="<file_sep>").complete(given)
    assert (jumps.jump_forward, jumps.min_jump_bytes, jumps.think_end, jumps.strict) == (False, 7, "<file_sep>", True)
    with pytest.raises(ConfigError, match="min_jump_bytes"):
        DecodingOptions(min_jump_bytes=0).complete(StageOptions())


@pytest.mark.slow
def test_compare_keeps_long_text_on_its_line(model: list[str], capsys: Capture) -> None:
    choice = "word " * 60 + "end"
    assert main(["compare", "x", *model[:2], "--max-new-tokens", "200", "--choice", choice]) == 0
    assert f"\n{choice}\n" in capsys.readouterr().out


def test_the_matrix_is_the_capabilities(capsys: Capture) -> None:
    assert main(["stages", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["stages"]
    for row, spec in zip(shown, stages.all_stages(), strict=True):
        assert (row["id"], row["name"]) == (spec.id, spec.name)
        assert set(row["constraints"]) == spec.capabilities.constraints
        assert row["backends"] == list(spec.capabilities.backends)
        assert row["overlap"] == spec.capabilities.overlap
    assert main(["stages"]) == 0
    table = capsys.readouterr().out
    first = stages.get_stage(1).capabilities
    for kind in ("regex", "json_object"):
        line = next(line for line in table.splitlines() if line.strip().startswith(kind))
        assert line.split()[1] == ("yes" if kind in first.constraints else "no")


# the independent check


@pytest.mark.parametrize(("constraint", "text", "valid"), [
    (Constraint.regex("[ab]+"), "abab", True),
    (Constraint.regex("[ab]+"), "abc", False),
    (Constraint.regex("a."), "a\n", False),
    (Constraint.regex(r"\d"), "٣", False),
    (Constraint.regex("天+"), "天天", True),
    (Constraint.choice(["yes", "no"]), "no", True),
    (Constraint.choice(["yes", "no"]), "n", False),
    (Constraint("json_object"), '{"a": [1]}', True),
    (Constraint("json_object"), "[1]", False),
    (Constraint("json_object"), '{"a": NaN}', False),
    (Constraint("json_object"), '{"a": 1', False),
    (Constraint.json_schema({"type": "integer", "maximum": 9}), "7", True),
    (Constraint.json_schema({"type": "integer", "maximum": 9}), "10", False),
    (Constraint.json_schema({"type": "strnig"}), "10", None),
    (Constraint.ebnf('root ::= "a" root "b" | ""'), "aabb", True),
    (Constraint.ebnf('root ::= "a" root "b" | ""'), "aab", False),
    (Constraint.ebnf("root ::= missing"), "", None),
    (Constraint.structural_tag({"structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}],
                                "triggers": ["<n>"]}), "so <n>12</n>!", True),
    (Constraint.structural_tag({"structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}],
                                "triggers": ["<n>"]}), "so <n>x</n>!", False),
    (Constraint.structural_tag({"type": "structural_tag", "format": {}}), "", None),
    (None, "anything", None),
])
def test_validity_is_an_independent_word_and_not_the_decoders(constraint: Constraint | None, text: str,
                                                       valid: bool | None) -> None:
    assert is_valid(constraint, text) is valid


def test_a_pattern_that_python_cannot_finish_is_not_checked_instead_of_hanging() -> None:
    assert is_valid(Constraint.regex("(a|aa)+b"), "a" * 200, timeout_s=0.5) is None


# options


def test_json_comes_from_the_command_line_or_from_a_file(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "string"}', encoding="utf-8")
    for value in ('{"type": "string"}', str(schema)):
        assert ConstraintOptions(json_schema=value).constraint() == Constraint("json_schema", '{"type": "string"}')
    schema.write_text('{"type": ]', encoding="utf-8")
    with pytest.raises(GrammarSyntaxError, match=r"schema\.json: not JSON") as caught:
        ConstraintOptions(json_schema=str(schema)).constraint()
    assert caught.value.offset == 9
    schema.write_bytes(b"\xff{}")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 0"):
        ConstraintOptions(json_schema=str(schema)).constraint()


def test_options_left_alone_are_the_runtimes_defaults() -> None:
    from shared_runtime.sampling_params import SamplingParams

    assert SamplingOptions().params() == SamplingParams()


def test_a_prompt_is_a_chat_unless_it_should_be_raw(monkeypatch: pytest.MonkeyPatch) -> None:
    user = {"role": "user", "content": "hi"}
    assert PromptOptions().prompt("hi").messages == [user]
    assert PromptOptions(system="s").prompt("hi").messages == [{"role": "system", "content": "s"}, user]
    assert PromptOptions(no_chat=True).prompt("hi").text == "hi"
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi"))
    assert PromptOptions().prompt("-").messages == [user]


def test_two_groups_cannot_declare_one_option() -> None:
    def command(first: PromptOptions, second: PromptOptions) -> int:
        return 0

    command.__annotations__ = {"first": PromptOptions, "second": PromptOptions, "return": int}
    with pytest.raises(TypeError, match="declared twice: no_chat, system"):
        expand_groups(command)


# doctor --measure


def test_the_default_setting_stays_unless_another_is_clearly_faster() -> None:
    default = Reading("fp32", 1, prefill_ms=300, decode_ms=70)
    close = Reading("bf16", 1, prefill_ms=150, decode_ms=68)
    faster = Reading("fp32", 4, prefill_ms=100, decode_ms=30)
    assert recommend([close, default], 1) is default
    assert recommend([close, default, faster], 1) is faster
    with pytest.raises(ValueError, match="no reading of fp32 with 2 threads"):
        recommend([default], 2)


@pytest.mark.parametrize(("cores", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (64, [1, 2, 4, 8, 16])])
def test_thread_counts_reach_the_machines_cores(cores: int, counts: list[int]) -> None:
    assert thread_counts(cores) == counts


@pytest.mark.slow
@pytest.mark.model
def test_measuring_names_one_of_the_settings_it_measured(embedded_folder: Path, capsys: Capture,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumpforward.measure.thread_counts", lambda cores: [1])
    monkeypatch.setattr("shared_runtime.config.usable_cores", lambda: 1)
    report = measure_settings(quiet=False)
    assert isinstance(report["readings"], list)
    assert report["recommended"] in report["readings"]
    assert all(reading["decode_ms"] > 0 for reading in report["readings"])
    assert "fastest for a request" in capsys.readouterr().out
