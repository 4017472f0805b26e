"""The command line: what a person types, what comes back, and with which exit code."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import typer
import typer.core
import typer.main

import stages
from jumpforward.answer_stream import ReasoningSplit
from jumpforward.cli import app, main
from jumpforward.compare_command import Row, Variant, variants
from jumpforward.compare_view import comparison_view
from jumpforward.console import ProgressLine, TextWriter, page_width, print_rich, visible
from jumpforward.decoding_options import DecodingOptions, GrammarOptions
from jumpforward.help import name_options
from jumpforward.measure import Reading, measure_settings, recommend, thread_counts
from jumpforward.option_groups import expand_groups
from jumpforward.options import ConstraintOptions, Prompt, PromptOptions, SamplingOptions, reread
from jumpforward.page import Column, tables
from jumpforward.result_json import schema_text
from jumpforward.validity import is_valid
from shared_runtime import assembly
from shared_runtime.config import EngineConfig
from shared_runtime.constrain.using.reasoning import ReasoningPart
from shared_runtime.constraint import Constraint
from shared_runtime.engine import Engine
from shared_runtime.errors import ConfigError, GrammarSyntaxError, RequestError
from shared_runtime.model_runner import load_model
from shared_runtime.policy import Capabilities, StageOptions, StageSpec
from shared_runtime.result import StreamEvent
from shared_runtime.tokenizer import Tokenizer
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
        "--think-end", "--no-thinking", "--thinking-budget"}


COMMANDS = [["run"], ["compare"], ["check"], ["diff"], ["stages"], ["doctor"], ["museum", "list"], ["museum", "show"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_switch_is_shown_without_a_type_and_an_option_with_its_meaning(command: list[str], capsys: Capture) -> None:
    assert main([*command, "--help"]) == 0
    page = capsys.readouterr().out
    assert "<bool>" not in page
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "compare", "check", "diff"])
def test_the_examples_of_a_help_page_run(command: str, tiny_model: Path, capsys: Capture) -> None:
    assert main([command, "--help"]) == 0
    examples = re.findall(r"^ +jumpforward (.+?) *$", capsys.readouterr().out.split("Examples:")[1], re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        words = shlex.split(example)
        where = ["--model", str(tiny_model)] if command != "diff" else []
        assert main([*words, *where]) == 0, capsys.readouterr().err
        assert capsys.readouterr().out


def test_a_group_without_a_command_shows_its_help_and_no_error(capsys: Capture) -> None:
    for words in ([], ["museum"]):
        assert main(words) == 2
        shown = capsys.readouterr()
        assert "Commands" in shown.out
        assert shown.err == ""


def test_an_error_names_options_and_leaves_what_was_typed_alone() -> None:
    root = typer.main.get_command(app)
    assert isinstance(root, typer.core.TyperGroup)
    parameters = root.commands["run"].params
    error = RequestError("'max_new_tokens' is odd", where="max_new_tokens", fix="set max_new_tokens, not other_thing")
    name_options(error, parameters)
    assert str(error) == "--max-new-tokens: 'max_new_tokens' is odd (set --max-new-tokens, not other_thing)"
    name_options(error, parameters)
    assert str(error).count("--max") == 2


def test_the_version_is_that_of_the_package(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"jumpforward \d+\.\d+\.\d+\n", capsys.readouterr().out)


# errors


@pytest.mark.parametrize(("words", "code", "named"), [
    (["run"], 2, "PROMPT"),
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
    (["run", "x", "--top-p", "3"], 1, "--top-p"),
    (["run", "x", "--model", "/no/such/folder"], 1, "/no/such/folder"),
    (["compare", "x", "--n", "2"], 2, "--n"),
    (["compare", "x", "--backend", "nobody"], 2, "nobody"),
    (["run", "x", "--backend", "nobody"], 2, "nobody"),
    (["run", "x", "--min-jump-bytes", "0"], 2, "--min-jump-bytes"),
    (["run", "x", "--min-new-tokens", "500"], 1, "raise --max-new-tokens"),
    (["run", "x", "--max-new-tokens", "many"], 2, "it should be a valid integer (see jumpforward run --help)"),
    (["run", "x", "--no-thinking", "--thinking-budget", "3"], 2, "--no-thinking and --thinking-budget"),
    (["run", "x", "y"], 2, "quotes"),
    (["stages", "x"], 2, "(see jumpforward stages --help)"),
    (["museum", "show", "x"], 2, "(see jumpforward museum show --help)"),
    (["museum", "nothing"], 2, "(see jumpforward museum --help)"),
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
    ways = [(row["stage"], row["overlap"] == "on", row["backend_jump"]) for row in shown["rows"]]
    assert ways == [(one.stage, one.overlap, one.backend_jump) for one in variants(stages.all_stages())]
    for row in shown["rows"]:
        assert row["valid"] is True
        assert row["counts"]["forward_passes"] >= 1
        assert row["error"] is None


def able(stage: int, **abilities: object) -> StageSpec:
    """A stage of which only the capabilities matter."""
    can = Capabilities(constraints=frozenset({"regex"}), backends=("one",), **abilities)  # type: ignore[arg-type]
    return replace(stages.get_stage(1), id=stage, capabilities=can)


def test_the_rows_are_what_the_capabilities_name() -> None:
    specs = [able(5, jump_forward=("none", "draft", "force"), overlap="delayed", overlaps_by_default=True), able(1),
             able(2, jump_forward=("none", "scheduler")), able(4, overlap="event"),
             able(3, jump_forward=("none", "force"))]
    assert variants(specs) == [
        Variant(1, "one"), Variant(2, "one"), Variant(3, "one"), Variant(3, "one", backend_jump="force"),
        Variant(4, "one"), Variant(4, "one", overlap=True), Variant(5, "one", overlap=True),
        Variant(5, "one", backend_jump="draft"),
        Variant(5, "one", backend_jump="force"), Variant(5, "one", backend_jump="force+draft")]


@pytest.mark.slow
def test_a_row_of_compare_is_what_run_gives(model: list[str], capsys: Capture) -> None:
    words = ["x", "--json", *model, "--regex", "[a-f]{3,9}", "--temperature", "1"]
    assert main(["compare", *words]) == 0
    for row in json.loads(capsys.readouterr().out)["rows"]:
        way = ["--stage", str(row["stage"]), "--overlap", row["overlap"], "--backend-jump", row["backend_jump"]]
        if not stages.get_stage(row["stage"]).capabilities.overlap:
            del way[2:4]
        assert main(["run", *words, *way]) == 0
        answer = json.loads(capsys.readouterr().out)["answers"][0]
        assert (answer["text"], answer["token_ids"], answer["counts"]) == (
            row["text"], row["token_ids"], row["counts"]), way


def test_compare_loads_the_model_once(model: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Path] = []

    def counted(folder: Path, **settings: object) -> object:
        loads.append(folder)
        return load_model(folder, **settings)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(assembly, "load_model", counted)
    assert main(["compare", "x", *model, "--choice", "yes"]) == 0
    assert len(loads) == 1


def test_a_model_that_was_loaded_otherwise_is_not_taken(tiny_model: Path) -> None:
    config = EngineConfig(model=str(tiny_model), kv_pool_tokens=64)
    with Engine(config) as engine:
        again = Engine(config, loaded=engine.parts.loaded)
        assert again.parts.runner.decoder is engine.parts.runner.decoder
        assert again.parts.memory is not engine.parts.memory
        again.close()
        for other in (replace(config, exact=True), replace(config, dtype="bf16")):
            with pytest.raises(ConfigError, match="loaded with other settings"):
                Engine(other, loaded=engine.parts.loaded)


def row(stage: int, passes: int, *, overlap: bool = False, backend_jump: str = "none", **ways: int) -> Row:
    counts = dict.fromkeys(("sampled", "jumped", "forced", "drafted", "accepted", "masks", "reencoded"), 0)
    return Row(stage, "llguidance", "on" if overlap else "off", backend_jump, "fp32",  # type: ignore[arg-type]
               text="abc", token_ids=[1, 2], finish_reason="stop", valid=True,
               counts={**counts, "forward_passes": passes, **ways},
               ms={"compile": 1234.5, "mask_per_step": 0.5, "total": 12345.0})


def shown_comparison(rows: list[Row], width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    print_rich(*comparison_view(Prompt(text="p"), None, rows, width=width, unicode=False), stream=stream)
    return stream.getvalue()


@pytest.mark.parametrize("width", [120, 80, 60, 40])
def test_a_comparison_fits_its_page_and_loses_nothing(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(1, 120), row(4, 40, jumped=70), row(4, 111, overlap=True), row(5, 120, overlap=True),
            row(5, 33, backend_jump="force+draft", forced=80, drafted=30, accepted=17)]
    page = shown_comparison(rows, width, monkeypatch)
    assert max(map(len, page.splitlines())) <= width
    for name in ("passes", "sampled", "jumped", "forced", "drafted", "accepted", "compile", "mask", "total", "finish",
                 "valid", "backend"):
        assert name in page
    for cell in ("120", "70", "80", "30", "17", "1234.5", "12345", "5+force+draft", "4+overlap", "llguidance"):
        assert cell in page
    assert "5+overlap" not in page
    told = " ".join(page.split())
    assert "With overlap, stage 4 does not jump" in told
    assert "Overlap and backend jump exclude each other" in told


def test_a_comparison_says_nothing_of_what_no_row_does(monkeypatch: pytest.MonkeyPatch) -> None:
    page = shown_comparison([row(1, 12), row(4, 12), row(4, 12, overlap=True)], 100, monkeypatch)
    for absent in ("jumped", "forced", "drafted", "does not jump", "exclude"):
        assert absent not in page


def test_columns_that_do_not_fit_go_below_with_the_names_again() -> None:
    names, groups = Column("who", ["ann", "bo"], is_number=False), [[Column("x" * 20, ["1", "2"])] * 3]
    for width, count in ((100, 1), (50, 2), (30, 3), (5, 3)):
        found = tables(names, groups, width=width, unicode=False)
        assert len(found) == count
        assert all(table.columns[0].header == "who" for table in found)
        assert sum(len(table.columns) - 1 for table in found) == 3


def test_the_page_is_as_wide_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert page_width(io.StringIO()) == 100
    monkeypatch.setenv("COLUMNS", "60")
    assert page_width(io.StringIO()) == page_width(Terminal()) == 60


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
        for variant in variants(specs, wanted):
            spec = stages.get_stage(variant.stage)
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


def test_every_json_has_its_schema_and_follows_it(capsys: Capture) -> None:
    for words in (["stages"], ["doctor"], ["museum", "list"], ["museum", "show", "1"]):
        assert main([*words, "--json"]) == 0
        jsonschema.validate(json.loads(capsys.readouterr().out), json.loads(schema_text(words[0])))
        assert main([*words, "--json", "--nope"]) == 2
        failed = json.loads(capsys.readouterr().out)
        jsonschema.validate(failed, json.loads(schema_text(words[0])))
        assert set(failed) == {"error"}


def test_every_command_that_prints_json_has_a_schema() -> None:
    root = typer.main.get_command(app)
    assert isinstance(root, typer.core.TyperGroup)
    for name, command in root.commands.items():
        inner = list(command.commands.values()) if isinstance(command, typer.core.TyperGroup) else [command]
        if any("--json" in parameter.opts for one in inner for parameter in one.params):
            assert json.loads(schema_text(name))["title"].startswith(f"jumpforward {name}")


def test_the_matrix_is_the_capabilities(capsys: Capture) -> None:
    assert main(["stages", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["stages"]
    for row, spec in zip(shown, stages.all_stages(), strict=True):
        assert (row["id"], row["name"]) == (spec.id, spec.name)
        assert set(row["constraints"]) == spec.capabilities.constraints
        assert row["backends"] == list(spec.capabilities.backends)
        assert row["overlap"] == bool(spec.capabilities.overlap)
    assert main(["stages"]) == 0
    table = capsys.readouterr().out
    first = stages.get_stage(1).capabilities
    for kind in ("regex", "json_object"):
        line = next(line for line in table.splitlines() if line.strip().startswith(kind))
        assert line.split()[1] == ("yes" if kind in first.constraints else "no")


# reasoning

FILE_SEP = 5
THINKING = ["--stage", "5", "--think-end", "<file_sep>", "--regex", "[a-f]{3}[0-9]"]


@pytest.mark.parametrize(("extra", "longest"), [(["--thinking-budget", "4"], 4), (["--thinking-budget", "0"], 0),
                                                (["--no-thinking"], None)])
def test_what_is_printed_is_the_answer_and_reasoning_stands_beside_it(
        extra: list[str], longest: int | None, model: list[str], capsys: Capture) -> None:
    assert main(["run", "x", *model, *THINKING, *extra]) == 0
    shown = capsys.readouterr()
    assert re.fullmatch(r"[a-f]{3}[0-9]\n", shown.out)
    assert ("[reasoning]\n" in shown.err) == bool(longest)
    assert ": valid" in shown.err
    assert main(["run", "x", "--json", *model, *THINKING, *extra]) == 0
    whole = json.loads(capsys.readouterr().out)
    jsonschema.validate(whole, json.loads(schema_text("run")))
    answer = whole["answers"][0]
    assert answer["valid"] is True
    assert f"{answer['answer']}\n" == shown.out
    assert answer["token_ids"].count(FILE_SEP) == (longest is not None)
    if longest is None:
        assert (answer["reasoning"], answer["answer"]) == (None, answer["text"])
    else:
        assert answer["token_ids"].index(FILE_SEP) == longest
        assert answer["reasoning"] + answer["answer"] == answer["text"]


def test_an_answer_that_is_all_reasoning_is_not_valid_yet(model: list[str], capsys: Capture) -> None:
    assert main(["run", "x", *model[:2], "--max-new-tokens", "3", *THINKING, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["answers"][0]
    assert (answer["finish_reason"], answer["answer"], answer["valid"]) == ("length", "", False)
    assert answer["reasoning"] == answer["text"]


def test_several_thinking_answers_are_told_apart(model: list[str], capsys: Capture) -> None:
    words = ["run", "x", *model, *THINKING, "--thinking-budget", "3", "--n", "2", "--temperature", "1", "--seed", "3"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert len(re.findall(r"^\[answer \d of 2\]\n[a-f]{3}[0-9]\n", shown.out, flags=re.MULTILINE)) == 2
    assert shown.err.count("[reasoning]") == 2


def test_compare_judges_the_answer_without_its_reasoning(model: list[str], capsys: Capture) -> None:
    words = ["compare", "x", "--json", *model, "--think-end", "<file_sep>", "--thinking-budget", "2", "--choice", "yes"]
    assert main(words) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    for row in rows:
        able = stages.get_stage(row["stage"]).capabilities.reasoning
        assert (row["error"] is None) == able
        if able:
            assert row["valid"] is True
            assert row["text"].endswith("yes")


@pytest.mark.parametrize("pieces", [[1] * 9, [9], [3, 1, 5], [4, 5], [0, 9]])
def test_reasoning_is_told_from_the_answer_however_the_text_is_cut(pieces: list[int], embedded_folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(embedded_folder)
    thought, answer = tokenizer.spell("é thinks"), tokenizer.spell("say 天")
    ids = [*thought, FILE_SEP, *answer]
    split, text, told = ReasoningSplit(ReasoningPart(tokenizer, FILE_SEP)), tokenizer.decode(ids), ["", ""]
    at = 0
    for size in [*pieces, len(ids)]:
        piece = ids[at:at + size]
        shown = tokenizer.decode(ids[:at + size]).rstrip("\ufffd")
        new, text_left = shown[sum(map(len, told)):], len(shown)
        for side, part in enumerate(split.split(StreamEvent("r", 0, new, at, piece, ["sampled"] * len(piece)))):
            told[side] += part
        at = min(len(ids), at + size)
        assert sum(map(len, told)) == text_left
    assert told == ["é thinks", "say 天"]
    assert "".join(told) == text


def test_a_token_that_is_shown_is_in_neither_part(embedded_folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(embedded_folder)
    end = tokenizer.spell("!")[0]
    part = ReasoningPart(tokenizer, end)
    ids = [*tokenizer.spell("so"), end, *tokenizer.spell("yes")]
    assert part.split(tokenizer.decode(ids), ids) == ("so", "yes")
    assert part.split("s", ids) == ("s", "")  # a stop string has cut it
    assert part.split("so", ids[:-2]) == ("so", "")


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


@pytest.mark.parametrize("command", [["run", "x", "--choice", "天"],
                                     ["check", "--stage", "1", "--regex", "天", "--text", "天"]])
def test_text_is_utf_8_also_where_the_locale_is_not(command: list[str], tiny_model: Path) -> None:
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    done = subprocess.run([sys.executable, "-m", "jumpforward", *command, "--model", str(tiny_model)],
                          capture_output=True, env={**os.environ, **plain}, check=False)
    assert done.returncode == 0, done.stderr
    assert rb"\u5929" in done.stdout
    assert b"not text" not in done.stdout


def test_text_that_is_not_utf_8_is_left_to_be_refused() -> None:
    assert reread("天 ok") == "天 ok"
    for broken in ("a\udcff", "\ud800\udc00x", "\ud83d"):
        assert reread(broken) == broken
    assert reread(os.fsdecode("天".encode()[:2])) == os.fsdecode("天".encode()[:2])
    assert reread("\udce5\udca4\udca9") == "天"


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
    whole = {"ok": True, "checks": [{"name": "a", "status": "ok", "detail": "b", "fix": ""}], "measured": report}
    jsonschema.validate(whole, json.loads(schema_text("doctor")))
    assert "fastest for a request" in capsys.readouterr().out
