"""Peers in a process of their own: what goes over the pipe, and what is said where they are not there.

Their packages are not this project's, so small modules of their names stand for them here; the real ones are met where
`make peers` was run.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.ledger import NotHereError
from benchmarks.measuring import Lab
from benchmarks.peer_gbnf import gbnf_of
from benchmarks.peer_loops import Answer
from benchmarks.peer_process import VARIABLE, ProcessLoop, gguf_file, peers_python, pinned_versions
from benchmarks.peers import Peers, valid_share
from benchmarks.plan import PEERS, PeerCell, cells_named
from benchmarks.report import peers_table
from benchmarks.session import Session
from benchmarks.workloads import Question, Workload
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError
from shared_runtime.tokenizer import Tokenizer
from tests.bench.rows import row

PINS = pinned_versions()

LLAMA = '''
import os, sys, time

def llama_model_get_vocab(model): return "vocabulary"
def llama_vocab_is_eog(vocabulary, token): return token in (0, 2)

class LlamaGrammar:
    def __init__(self, text): self.text = text
    @classmethod
    def from_string(cls, text, verbose): return cls(text)
    @classmethod
    def from_json_schema(cls, text, verbose): return cls("schema " + text)

class Llama:
    def __init__(self, path, n_ctx, n_threads, n_threads_batch, verbose):
        print("noise on the output")
        if "broken" in path: raise ValueError("no such file")
        self.resets = 0
    model = None
    def n_vocab(self): return 4
    def reset(self): self.resets += 1
    def create_completion(self, ids, max_tokens, temperature, logit_bias, grammar):
        if grammar is not None and "[d] [i] [e]" in grammar.text:
            print("ggml: assert failed", file=sys.stderr, flush=True)
            os.abort()
        if grammar is not None and "[h] [a]" in grammar.text:
            time.sleep(600)
        text = "free" if grammar is None else grammar.text
        return {"choices": [{"text": f"{text} {len(ids)} {self.resets} {logit_bias}", "finish_reason": "stop"}],
                "usage": {"completion_tokens": max_tokens - 1}}
'''

GUIDANCE = '''
from types import SimpleNamespace as Some

def gen(**words): return Some(ll_grammar=lambda: ("gen", words))
def json(**words): return Some(ll_grammar=lambda: ("json", words))
def select(options, name): return Some(ll_grammar=lambda: ("select", {"options": options, "name": name}))

def token(**what): return Some(**{"is_backtracked": False} | what)

class State: prompt = ""

class Engine:
    def __init__(self): self.tokenizer = Some(encode=lambda text: [len(text)])
    def __call__(self, state, grammar):
        kind, words = grammar
        turn = lambda count, backtrack=0, text=None, **what: Some(
            tokens=[token() for _ in range(count)], backtrack=backtrack,
            capture_groups={} if text is None else {"answer": text.encode()})
        yield turn(3, backtrack=1)  # the prompt's last token anew, and two forced ones
        taken_back = turn(2)
        taken_back.tokens[0].is_backtracked = True
        yield taken_back
        yield turn(1, text=f"{kind} {words} {state.prompt[-5:]!r} {self._cached_token_ids}")
        return Some(forward_passes=3)

class LlamaCpp:
    def __init__(self, path, n_ctx, n_threads, n_threads_batch, verbose, echo, enable_monitoring):
        self._interpreter = Some(engine=Engine(), state=State())
'''


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like a virtual environment, whose Python finds the stand-in."""
    import sys

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "llama_cpp.py").write_text(LLAMA, encoding="utf-8")
    (tmp_path / "lib" / "guidance").mkdir()
    for name in ("__init__", "models"):
        (tmp_path / "lib" / "guidance" / f"{name}.py").write_text(GUIDANCE, encoding="utf-8")
    for name in ("llama-cpp-python", "guidance", "llguidance"):
        installed(tmp_path, name, PINS[name])
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nPYTHONPATH='{tmp_path / 'lib'}' exec '{sys.executable}' \"$@\"\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "venv"))
    monkeypatch.setattr("benchmarks.peer_process.gguf_file", lambda *_: tmp_path / "model.gguf")
    return tmp_path


def installed(folder: Path, name: str, version: str) -> None:
    """What the stand-in's folder says of a package, anew."""
    for old in (folder / "lib").glob(f"{name.replace('-', '_')}-*.dist-info"):
        shutil.rmtree(old)
    about = folder / "lib" / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")


def config(model: Path) -> EngineConfig:
    return EngineConfig(model=str(model), kv_pool_tokens=2048)


def test_questions_go_to_the_peer_and_its_answers_come_back(environment: Path, tiny_model: Path) -> None:
    choice, schema = Constraint.choice(["a", "b"]), Constraint.json_schema({"type": "boolean"})
    prompt = len(Tokenizer.from_folder(tiny_model).apply_chat(Question("hi", None).messages))
    loop = ProcessLoop("llama.cpp", peers_python(), config(tiny_model))
    try:
        loop.prepare(choice)
        loop.prepare(schema)
        loop.begin()
        found = loop.answer([Question("hi", choice), Question("hi", schema)], 8)
        assert found[0].text == f"{gbnf_of(choice)} {prompt} 1 None"
        assert found[1].text.startswith('schema {"type": "boolean"}')
        assert [(one.tokens, one.passes) for one in found] == [(8, 8)] * 2
        assert loop.answer([Question("hi", None)], 8, least=8)[0].text.endswith("{0: -inf, 2: -inf}")
    finally:
        loop.close()


def test_tokens_that_guidance_forces_or_takes_back_are_counted_and_its_prompt_is_ours(
        environment: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    regex, choice = Constraint.regex("a+"), Constraint.choice(["a", "b"])
    schema = Constraint.json_schema({"type": "boolean"})
    tokenizer = Tokenizer.from_folder(tiny_model)
    question = Question("hi", regex)
    prompt = tokenizer.render_chat(question.messages)
    monkeypatch.setattr(Tokenizer, "apply_chat", lambda *_: [len(prompt.encode())])  # as the stand-in's tokenizer
    loop = ProcessLoop("guidance", peers_python(), config(tiny_model))
    try:
        for one in (regex, choice, schema):
            loop.prepare(one)
        loop.begin()
        found = loop.answer([Question("hi", one) for one in (regex, choice, schema, None)], 8)
        assert [one.text for one in found] == [
            f"gen {{'name': 'answer', 'temperature': 0.0, 'max_tokens': 8, 'regex': 'a+'}} {prompt[-5:]!r} []",
            f"select {{'options': ['a', 'b'], 'name': 'answer'}} {prompt[-5:]!r} []",
            "json {'name': 'answer', 'schema': {'type': 'boolean'}, 'temperature': 0.0, 'max_tokens': 8, "
            f"'separators': (', ', ': ')}} {prompt[-5:]!r} []",
            f"gen {{'name': 'answer', 'temperature': 0.0, 'max_tokens': 8}} {prompt[-5:]!r} []"]
        assert {(one.tokens, one.passes) for one in found} == {(4, 3)}
        monkeypatch.setattr(Tokenizer, "apply_chat", lambda *_: [1])
        with pytest.raises(NotHereError, match="guidance: ValueError: it reads this prompt as other tokens"):
            loop.answer([Question("hi, you", regex)], 8)
    finally:
        loop.close()


def test_what_goes_wrong_there_is_the_reason_of_a_row_left_out(environment: Path, tiny_model: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(environment / "lib" / f"guidance-{PINS['guidance']}.dist-info")
    with pytest.raises(NotHereError, match=r"has no guidance \(make peers\)"):
        ProcessLoop("guidance", peers_python(), config(tiny_model))
    installed(environment, "llama-cpp-python", "0.1.0")
    with pytest.raises(NotHereError, match=r"llama-cpp-python 0\.1\.0 instead of .*\(make peers\)"):
        ProcessLoop("llama.cpp", peers_python(), config(tiny_model))
    installed(environment, "llama-cpp-python", PINS["llama-cpp-python"])
    monkeypatch.setattr("benchmarks.peer_process.gguf_file", lambda *_: environment / "broken.gguf")
    with pytest.raises(NotHereError, match=r"llama\.cpp: ValueError: no such file"):
        ProcessLoop("llama.cpp", peers_python(), config(tiny_model))
    (environment / "venv" / "bin" / "python").write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    with pytest.raises(NotHereError, match=r"ended at versions, with exit code 3$"):
        ProcessLoop("llama.cpp", peers_python(), config(tiny_model))


def test_a_peer_that_dies_says_what_it_said_last(environment: Path, tiny_model: Path) -> None:
    die = Constraint.choice(["die"])
    loop = ProcessLoop("llama.cpp", peers_python(), config(tiny_model))
    try:
        loop.prepare(die)
        with pytest.raises(NotHereError, match=r"llama\.cpp ended at answer, with exit code -6: ggml: assert failed$"):
            loop.answer([Question("hi", die)], 8)
        assert not loop.alive
    finally:
        loop.close()


def test_a_peer_that_hangs_is_ended_and_the_next_row_gets_a_new_one(environment: Path, tiny_model: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    hang, good = Constraint.choice(["hang"]), Constraint.choice(["good"])
    peers = Peers(Lab(config(tiny_model), bandwidth=1e10, pairs=1))
    monkeypatch.setattr(peers, "_beside", lambda cell: {})
    peer = next(one for one in PEERS if one.backend == "gbnf")
    loop = peers._loops[peer] = ProcessLoop("llama.cpp", peers_python(), config(tiny_model))
    try:
        loop.prepare(hang)
        with monkeypatch.context() as patch:
            patch.setattr("benchmarks.peer_process.PATIENCE_S", 1.0)
            with pytest.raises(NotHereError, match="said nothing for 1 s at answer, and was ended"):
                loop.answer([Question("hi", hang)], 8)
        workload = Workload("choice", "", "", (Question("hi", good),), 8, (1,), (1,))
        assert peers.measure(PeerCell(workload, peer, 1)).texts[0].startswith(gbnf_of(good))
    finally:
        peers.close()


def test_what_a_peer_has_no_words_for_is_the_reason_of_a_row_left_out(environment: Path, tiny_model: Path) -> None:
    peers = Peers(Lab(config(tiny_model), bandwidth=1e10, pairs=1))
    [cell] = cells_named(["tool_call/0/gbnf/llama.cpp/1"])
    assert isinstance(cell, PeerCell)
    try:
        with pytest.raises(NotHereError, match=r"llama\.cpp is not asked for structural_tag: it has no words"):
            peers.measure(cell)
    finally:
        peers.close()


def test_an_answer_outside_the_language_is_counted() -> None:
    questions = tuple(Question("hi", Constraint.regex(one)) for one in ("a+", "b+"))
    workload = Workload("x", "", "", questions, 8, (1,), (1,))
    answers = [Answer(text, 1, 1) for text in ("aa", "b", "b", "bb")]
    assert valid_share(workload, answers) == {"valid_share": 0.75}
    assert valid_share(Workload("x", "", "", (Question("hi", None),), 8, (1,), (1,)), answers) == {}


def test_a_report_says_how_many_answers_are_in_the_language_where_any_was_checked() -> None:
    free = row(0, "llama.cpp", ratio=None, backend="-")
    checked = replace(row(0, "llama.cpp", ratio=None, backend="gbnf", steps=20), quality={"valid_share": 0.5})
    head, _, first, second = peers_table([free, checked]).splitlines()
    assert head == "| peer | batch | tokens | passes | ms/token | ms/byte | in the language |"
    assert first.endswith("| 40 | 40 | 50.0 | 12.3 | - |")
    assert second.endswith("| 40 | 20 | 50.0 | 12.3 | 50.0 % |")
    assert "in the language" not in peers_table([free])
    head, _, first, _ = peers_table([free, replace(free, workload="another")]).splitlines()
    assert head.startswith("| workload | peer | batch |")
    assert first.startswith(f"| {free.workload} | llama.cpp + - | 1 |")
    beside = replace(free, denominators=free.denominators | {"stage5_plain_ms_per_byte": 9.8})
    assert "| ms/byte | ours |" in peers_table([beside])
    assert "| 12.3 | 9.80 |" in peers_table([beside])


def test_without_their_environment_the_rows_are_left_out_with_a_reason(tiny_model: Path, tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    monkeypatch.setattr("benchmarks.session.memory_bandwidth", lambda *_: 1e10)
    cells = cells_named(["choice/0/llguidance/guidance/1", "choice/0/gbnf/llama.cpp/1", "choice/0/-/llama.cpp/1"])
    assert all(isinstance(one, PeerCell) and one.peer in PEERS for one in cells)
    ledger = Session(config(tiny_model), tmp_path / "a.json", pairs=1, quick=False).run(cells)
    assert ledger.measurements == []
    assert [one for one in ledger.notes if one.startswith("left out: ")] == [
        f"left out: {one.key}: the peers' own environment is not there (make peers)" for one in cells]


def test_a_model_without_a_gguf_has_no_such_peers(tmp_path: Path) -> None:
    assert gguf_file("some/model.gguf") == Path("some/model.gguf")
    with pytest.raises(NotHereError, match="needs a model in GGUF"):
        gguf_file(str(tmp_path))


def test_a_row_is_named_by_its_key() -> None:
    assert [one.key for one in cells_named(["light/5/llguidance/plain/3", "masks/outlines",
                                            "growth/compile by states/xgrammar/10"])] == [
        "light/5/llguidance/plain/3", "masks/outlines", "growth/compile by states/xgrammar/10"]
    for key in ("light/6/xgrammar/plain/1", "nothing", "light/5/xgrammar/plain/0", "masks/none"):
        with pytest.raises(ConfigError, match="there is no row"):
            cells_named([key])
