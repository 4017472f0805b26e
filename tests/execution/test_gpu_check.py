"""The script for a GPU, run on the CPU as far as that goes: what it writes, what it does where things are missing."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from benchmarks.denominators import memory_bandwidth
from benchmarks.ledger import Ledger, Measurement, NotHereError, percentiles
from benchmarks.modes import Mode, modes_of
from scripts.gpu import checks
from scripts.gpu.bench import Bench
from scripts.gpu.checks import compare
from scripts.gpu.made_up_model import VOCABULARY, make_model
from scripts.gpu.measures import LETTERS, plan
from shared_runtime.engine import Engine
from shared_runtime.request import TokenLogprobs
from shared_runtime.tokenizer import Tokenizer
from stages import get_stage
from tests.conftest import EngineFactory

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "benchmarks" / "ledger.schema.json").read_text(encoding="utf-8"))
SCRIPT = "scripts/gpu_check.py"

WITHOUT_LIBRARIES = """
import runpy, sys
for name in "interegular outlines outlines_core llguidance xgrammar transformers jsonschema typer".split():
    sys.modules[name] = None
sys.argv = ["gpu_check.py", *sys.argv[1:]]
runpy.run_path("scripts/gpu_check.py", run_name="__main__")
"""


def _run(out: Path, *words: str, program: tuple[str, ...] = (SCRIPT,)) -> tuple[str, dict[str, Any]]:
    done = subprocess.run([sys.executable, *program, "--out", str(out), *words], cwd=ROOT, capture_output=True,
                          text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    return done.stdout, written


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_it_says_so_and_all_is_well(tmp_path: Path) -> None:
    said, written = _run(tmp_path / "ledger.json")
    assert "no CUDA device; nothing to check" in said
    assert written == {}


@pytest.mark.slow
def test_every_check_that_needs_no_gpu_passes_on_the_cpu(tmp_path: Path) -> None:
    _, ledger = _run(tmp_path / "ledger.json", "--device", "cpu", "--small", "--only", "checks")
    jsonschema.validate(ledger, SCHEMA)
    outcomes = {check["name"]: check["outcome"] for check in ledger["checks"]}
    cores = [name for name in outcomes if name.startswith("core of the conformance suite")]
    assert len(cores) == 9
    assert all(outcomes[name] == "ok" for name in cores)
    assert outcomes["fp32 greedy tokens agree with the CPU"] == "ok"
    skipped = {name for name, outcome in outcomes.items() if outcome == "skipped"}
    assert skipped <= {"mask kernel against the naive loop", "token filter kernel against the CPU's",
                       "recorded passes against eager ones, fp32", "recorded passes against eager ones, bf16",
                       "a grammar takes the same way through the model", "FlashInfer against torch's attention",
                       "ranks over NCCL print what one process prints",
                       "draft against plain, exact mode", "force+draft against plain, exact mode",
                       "force against plain, exact mode", "overlap against plain, exact mode",
                       "ngram against plain, exact mode"}


@pytest.mark.slow
def test_a_bare_machine_is_enough(tmp_path: Path) -> None:
    """No grammar library, no command line: the model, the sampler and the kernels are checked all the same."""
    _, ledger = _run(tmp_path / "ledger.json", "--device", "cpu", "--small", "--only", "checks",
                     program=("-c", WITHOUT_LIBRARIES))
    jsonschema.validate(ledger, SCHEMA)
    assert {check["name"] for check in ledger["checks"] if check["outcome"] == "ok"} == {
        "noise is the same on every device", "fp32 greedy tokens agree with the CPU",
        "exact mode: alone as among fifteen"}
    assert any("stage5-xgrammar is left out: xgrammar is not installed" in note for note in ledger["notes"])


@pytest.mark.slow
def test_what_is_measured_says_what_it_is_to_be_compared_with(tmp_path: Path) -> None:
    _, ledger = _run(tmp_path / "ledger.json", "--device", "cpu", "--small", "--only", "measures", "--seconds", "1")
    jsonschema.validate(ledger, SCHEMA)
    assert any("the time for measuring is up" in note for note in ledger["notes"])
    assert any("memory bandwidth" in note for note in ledger["notes"])


def test_a_row_of_the_table(make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    from scripts.gpu import measures

    monkeypatch.setattr(measures, "PARAMS", replace(measures.PARAMS, max_new_tokens=6))
    target = _bench("x").stage_5()
    engine: Engine = make_engine(stage=5, overlap=False)
    row = measures._run(engine, target, Mode("plain"), "fp32", 2, "letters", LETTERS)
    assert (row.workload, row.stage, row.mode, row.batch, row.graphs) == ("letters", 5, "plain", 2, False)
    assert row.counts["tokens"] == 12
    assert row.counts["steps"] >= 6
    assert row.step_ms["p50"] <= row.step_ms["p99.9"]
    ledger = Ledger.begin("cpu", {})
    ledger.measured(row)
    jsonschema.validate(_as_json(ledger), SCHEMA)


# the parts

def _bench(model: str) -> Bench:
    return Bench(Ledger.begin("cpu", {}), model, "auto", "cpu")


def _as_json(ledger: Ledger) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(json.dumps(asdict(ledger)))
    return shown


def test_a_check_fails_by_whatever_it_raises_and_the_others_go_on() -> None:
    ledger = Ledger.begin("cpu", {})

    def missing() -> str:
        raise NotHereError("no such library")

    ledger.check("divides", lambda: str(1 / 0))
    ledger.check("is missing", missing)
    ledger.check("is right", lambda: "two\nlines")
    assert [(one.outcome, one.seen) for one in ledger.checks] == [
        ("failed", "ZeroDivisionError: division by zero"), ("skipped", "no such library"), ("ok", "two lines")]
    assert ledger.failed == ["divides"]
    jsonschema.validate(_as_json(ledger), SCHEMA)


def test_the_schema_refuses_a_ledger_that_lacks_its_denominators() -> None:
    ledger = Ledger.begin("cpu", {})
    ledger.measured(Measurement("w", 5, None, "plain", "fp32", 1, False, {"tokens": 1, "steps": 1}, {}, 1.0, 1.0))
    shown = _as_json(ledger)
    jsonschema.validate(shown, SCHEMA)
    del shown["measurements"][0]["denominators"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(shown, SCHEMA)


def test_results_that_differ_at_a_clear_choice_are_a_failure(make_engine: EngineFactory) -> None:
    from shared_runtime.sampling_params import SamplingParams

    params = SamplingParams(max_new_tokens=4, top_logprobs=2, ignore_eos=True)
    engine = make_engine()
    one, other = engine.generate(["a", "b"], sampling=params)
    assert compare([one], [one]).startswith("1 of 1 requests token for token")
    with pytest.raises(AssertionError, match="tokens differ where the best two are"):
        compare([one], [other])
    first = one.logprobs[0]
    shifted = TokenLogprobs(first.token_id, first.logprob + 0.1, first.masked_logprob, first.top)
    with pytest.raises(AssertionError, match="log-probabilities differ by 0"):
        compare([one], [replace(one, logprobs=[shifted, *one.logprobs[1:]])])


def test_the_made_up_vocabulary_is_full_and_spells_with_its_longest_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(make_model(tmp_path, small=True))
    spelled = tokenizer.vocabulary.token_bytes
    assert len(spelled) == VOCABULARY
    assert len(set(spelled[1:])) == VOCABULARY - 1
    for text in ("a card: the name is abcd, 1234", '{"name": "yes"}', "世界 é"):
        ids = tokenizer.encode(text)
        assert tokenizer.vocabulary.decode(ids).decode() == text
    assert len(tokenizer.encode("the cat was red")) <= 6


def test_percentiles_are_values_that_occurred() -> None:
    assert percentiles([3.0]) == {"p50": 3.0, "p90": 3.0, "p99": 3.0, "p99.9": 3.0}
    assert percentiles([float(value) for value in range(1000)]) == {
        "p50": 500.0, "p90": 900.0, "p99": 990.0, "p99.9": 999.0}


def test_a_stages_modes_are_those_it_has() -> None:
    bench = _bench("x")
    assert [mode.name for mode in modes_of(get_stage(1))] == ["plain"]
    assert "jump" in [mode.name for mode in modes_of(get_stage(2))]
    can = get_stage(5).capabilities
    names = [mode.name for mode in modes_of(get_stage(5))]
    assert ("overlap" in names) is bool(can.overlap)
    assert ("force+draft" in names) is ({"draft", "force"} <= set(can.jump_forward))
    with pytest.raises(NotHereError, match="stage 1 has no draft in this version"):
        bench.mode(next(one for one in bench.targets() if one.spec.id == 1), "draft")
    assert {target.spec.id for target, _ in plan(bench, full=False)} == {1, 2, 3, 4, 5}
    assert all(mode.name == "plain" for _, mode in plan(bench, full=False))


@pytest.mark.slow
def test_the_check_of_ranks_compares_them_with_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with two GPUs, over gloo."""
    bench = Bench(Ledger.begin("cpu", {}), str(make_model(tmp_path, small=True)), "dummy", "cpu")
    with pytest.raises(NotHereError, match="0 GPUs, and the model can be shared by"):
        checks.ranks(bench)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert checks.ranks(bench) == "2 ranks; the same text"


def test_bandwidth_is_measured() -> None:
    assert memory_bandwidth(torch.device("cpu"), 1 << 20) > 0


def test_the_wheels_to_carry_are_those_of_the_constraints() -> None:
    pinned = set((ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines())
    wanted = [line for line in (ROOT / "scripts" / "gpu" / "wheels.txt").read_text(encoding="utf-8").splitlines()
              if not line.startswith("#")]
    assert len(wanted) == 12
    assert set(wanted) <= pinned
