"""The bench of the bare pass: it measures what it says it does, and the docs show what it measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from benchmarks.bare_pass import BarePass, TransformersPass, transformers_model
from benchmarks.speed import main, table
from shared_runtime.config import EngineConfig
from shared_runtime.engine import Engine
from tests.tiny_models import tiny_folder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, embedded_folder: Path) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("model"), tokenizer_from=embedded_folder)


@pytest.mark.model
def test_a_bare_pass_gives_its_memory_back_and_computes_what_its_peer_computes(tiny: Path) -> None:
    with Engine(EngineConfig(model=str(tiny), kv_pool_tokens=128)) as engine:
        memory = engine.parts.memory
        with BarePass(engine, 1, 1) as ours:
            # With nothing in front of it both see the same token and no other.
            peer = TransformersPass(transformers_model(str(tiny), torch.float32), 1, 2)
            assert ours().shape == peer().shape
            peer.rewind()
            peer.rewind()
            peer._positions.zero_()
            assert float((ours() - peer()).abs().max()) < 1e-4
        with BarePass(engine, 3, 20, fed=8) as wide:
            assert wide().shape == (24, ours_width(engine))
            assert memory.pool.available == 128 - 60
        assert memory.pool.available == 128
        with pytest.raises(ValueError, match="no room for 3 x 60"):
            BarePass(engine, 3, 60)
        assert memory.pool.available == 128
        engine.check_integrity()


def ours_width(engine: Engine) -> int:
    return engine.tokenizer.vocabulary.width


@pytest.mark.slow
@pytest.mark.model
def test_the_command_writes_a_file_and_goes_on_with_it(tiny: Path, tmp_path: Path,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "speed.json"
    before = torch.get_num_threads()
    short = ["--model", str(tiny), "--context", "16", "--pairs", "1", "--passes", "1", "--json", str(out)]
    try:
        assert main(["--dtype", "fp32", *short]) == 0
        assert main(["--dtype", "bf16", "--no-peers", *short]) == 0
    finally:
        torch.set_num_threads(before)
    data = json.loads(out.read_text(encoding="utf-8"))
    assert [(part["dtype"], part["threads"]) for part in data["parts"]] == [("bf16", 1), ("fp32", 1)]
    for part in data["parts"]:
        kinds = {(row["what"], row["batch"]) for row in part["rows"]}
        assert {("1 position, ours 8", 1), ("plain weights", 16)} <= kinds
        assert (("int8 beside packed", 1) in kinds) == (part["dtype"] == "bf16")
        passes = [(one["of"], one["batch"], one["positions"]) for one in part["profiles"]]
        assert passes[:4] == [("ours", 1, 1), ("ours", 1, 8), ("ours", 16, 1), ("ours", 32, 1)]
        assert passes[4:] == [("ours, int8" if part["dtype"] == "bf16" else "transformers", 1, 1)]
        for one in part["profiles"]:
            assert sum(one[name] for name in ("linear", "attention", "gather", "other")) == pytest.approx(1, abs=1e-3)
            assert one["linear"] > 0
            assert one["attention"] > 0
    capsys.readouterr()
    assert main(["--table", str(out)]) == 0
    assert capsys.readouterr().out == table(data) + "\n"


def test_the_table_in_the_docs_is_that_of_its_file() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    [(path, text)] = re.findall(r"<!-- speed: (\S+) -->\n\n(.*?)\n\n<!-- end -->", page, re.DOTALL)
    assert text == table(json.loads((ROOT / path).read_text(encoding="utf-8")))
