"""Peers in a process of their own: what goes over the pipe, and what is said where they are not there.

Their packages are not this project's, so small modules of their names stand for them here; the real ones are met where
`make peers` was run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.ledger import NotHereError
from benchmarks.mask_engines import engine_named
from benchmarks.peer_gbnf import gbnf_of
from benchmarks.peer_process import VARIABLE, ProcessLoop, gguf_file, peers_python
from benchmarks.plan import PEERS, PeerCell, cells_named
from benchmarks.session import Session
from benchmarks.workloads import Question
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError
from shared_runtime.tokenizer import Tokenizer

LLAMA = '''
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
    def reset(self): self.resets += 1
    def token_eos(self): return 2
    def create_completion(self, ids, max_tokens, temperature, logit_bias, grammar):
        text = "free" if grammar is None else grammar.text
        return {"choices": [{"text": f"{text} {len(ids)} {self.resets} {logit_bias}", "finish_reason": "stop"}],
                "usage": {"completion_tokens": max_tokens - 1}}
'''


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like a virtual environment, whose Python finds the stand-in."""
    import sys

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "llama_cpp.py").write_text(LLAMA, encoding="utf-8")
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nPYTHONPATH='{tmp_path / 'lib'}' exec '{sys.executable}' \"$@\"\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "venv"))
    monkeypatch.setattr("benchmarks.peer_process.gguf_file", lambda *_: tmp_path / "model.gguf")
    return tmp_path


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
        assert loop.answer([Question("hi", None)], 8, least=8)[0].text.endswith("{2: -inf}")
    finally:
        loop.close()


def test_what_goes_wrong_there_is_the_reason_of_a_row_left_out(environment: Path, tiny_model: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotHereError, match="No module named 'guidance'"):
        ProcessLoop("guidance", peers_python(), config(tiny_model))
    monkeypatch.setattr("benchmarks.peer_process.gguf_file", lambda *_: environment / "broken.gguf")
    with pytest.raises(NotHereError, match=r"llama\.cpp: ValueError: no such file"):
        ProcessLoop("llama.cpp", peers_python(), config(tiny_model))
    (environment / "venv" / "bin" / "python").write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    with pytest.raises(NotHereError, match="ended at load"):
        ProcessLoop("llama.cpp", peers_python(), config(tiny_model))


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


@pytest.mark.parametrize(("pattern", "inside", "outside"), [
    (r"[A-Z][a-z]{2,4}( x)?", ["Abc", "Abcde x"], ["ab", "Abcdef", "Abc y"]),
    (r"(ja|„nein“|\])+", ["ja", "„nein“ja]"], ["", "nein"]),
    (r'\{"a": [^"\\]*\}', ['{"a": }', '{"a": é-^}'], ['{"a": "}']),
    (r"(|ab)c{0,1}", ["", "abc", "c"], ["abcc"]),
])
def test_a_grammar_in_gbnf_has_the_language_of_its_regex(pattern: str, inside: list[str], outside: list[str],
                                                         tiny_model: Path) -> None:
    tokenizer = Tokenizer.from_folder(tiny_model)
    start = engine_named("xgrammar", tokenizer)(Constraint("ebnf", source=gbnf_of(Constraint.regex(pattern))))
    for text in [*inside, *outside]:
        walker, through = start(), True
        for token_id in [*tokenizer.spell(text), min(tokenizer.vocabulary.stop_ids)]:
            through = through and walker.mask()(token_id)
            if not through:
                break
            walker.accept(token_id)
        assert through is (text in inside), text
