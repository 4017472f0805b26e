"""A run that is stopped goes on where it stopped; its ledger says what it is, and is told from another's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.ledger import EngineRow, Interval
from benchmarks.plan import AnyCell, Cell, PeerCell, plan
from benchmarks.results import read_ledger, verify, write_sums
from benchmarks.session import Session
from benchmarks.workloads import all_workloads
from shared_runtime.config import EngineConfig
from shared_runtime.errors import ConfigError
from shared_runtime.grammar_limits import GrammarLimits
from tests.bench.rows import row, row_of


def session(tiny_model: Path, out: Path, **settings: object) -> Session:
    config = EngineConfig(model=str(tiny_model), kv_pool_tokens=4096, limits=GrammarLimits(compile_timeout=120.0))
    values: dict[str, object] = {"config": config, "out": out, "pairs": 1, "quick": True, "bandwidth_bytes": 1 << 20}
    return Session(**values | settings)  # type: ignore[arg-type]  # a test's own keywords


def cells(workload: str = "choice", **settings: object) -> list[AnyCell]:
    chosen = [one for one in all_workloads() if one.name == workload]
    chosen = [replace(one, quick=(1,)) for one in chosen]
    return plan(chosen, quick=True, **{"stages": [5], "peers": False, "engines": False}  # type: ignore[arg-type]
                | settings)


class Stopper:
    """A progress callback that stops the run when a row is begun, as Ctrl-C does."""

    def __init__(self, at: str | None = None) -> None:
        self.at = at
        self.begun: list[str] = []

    def __call__(self, what: str, done: int, total: int) -> None:
        if what == self.at:
            raise KeyboardInterrupt
        if what.startswith("choice/"):
            self.begun.append(what)


def test_a_stopped_run_goes_on_where_it_stopped(tiny_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "ledger.json"
    wanted = cells()
    keys = [one.key for one in wanted]
    with pytest.raises(KeyboardInterrupt):
        session(tiny_model, out, progress=Stopper(keys[2])).run(wanted)
    half = read_ledger(out)
    assert [one.key for one in half.measurements] == keys[:2]
    assert half.unfinished == keys[2:]

    rest = Stopper()
    ledger = session(tiny_model, out, progress=rest).run(wanted)
    assert rest.begun == keys[2:]
    assert [one.key for one in ledger.measurements] == keys
    assert ledger.unfinished == []
    assert ledger == read_ledger(out)
    by_mode = {one.mode: one for one in ledger.measurements}
    assert by_mode["draft"].quality["edits_from_plain"] == 0  # of the texts that the first run wrote down
    assert all("speedup_bound" in one.denominators for one in ledger.measurements)

    again = Stopper()
    assert session(tiny_model, out, progress=again).run(wanted).measurements == ledger.measurements
    assert again.begun == []
    torch.set_num_threads(1)


def test_when_time_is_up_the_rest_is_named(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is measured all the same, so that running again and again comes to an end."""
    monkeypatch.setattr("benchmarks.measuring.Lab.measure", lambda _lab, cell: row_of(cell))
    wanted = cells()
    ledger = session(tiny_model, tmp_path / "ledger.json", seconds=1e-6).run(wanted)
    assert [one.key for one in ledger.measurements] == [wanted[0].key]
    assert ledger.unfinished == [one.key for one in wanted[1:]]


def test_a_ledger_of_another_run_is_not_gone_on_with(tiny_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "ledger.json"
    session(tiny_model, out).run([])
    with pytest.raises(ConfigError, match="the ledger there is of another settings"):
        session(tiny_model, out, pairs=2).run(cells())
    written = json.loads(out.read_text(encoding="utf-8"))
    written["commit"] = "0" * 40
    out.write_text(json.dumps(written), encoding="utf-8")
    with pytest.raises(ConfigError, match="the ledger there is of another commit") as caught:
        session(tiny_model, out).run(cells())
    assert caught.value.fix is not None
    assert session(tiny_model, out, fresh=True).run([]).commit == "unknown"


def test_what_cannot_be_measured_is_told_and_not_tried_again(tiny_model: Path, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    from shared_runtime.errors import UnsupportedConstraintError

    def refuse(self: object, cell: Cell) -> None:
        raise UnsupportedConstraintError("no such thing here")

    out = tmp_path / "ledger.json"
    wanted = cells()[:2]
    with monkeypatch.context() as patched:
        patched.setattr("benchmarks.measuring.Lab.measure", refuse)
        ledger = session(tiny_model, out).run(wanted)
    assert ledger.measurements == []
    assert [note for note in ledger.notes if note.startswith("left out: ")] == [
        f"left out: {one.key}: no such thing here" for one in wanted]
    assert session(tiny_model, out).run(wanted).measurements == []


def test_how_busy_the_machine_was_is_written_down(tiny_model: Path, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    for load, busy in ((0.0, False), (500.0, True)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, load, load))
        notes = session(tiny_model, tmp_path / f"{busy}.json").run([]).notes
        assert any("the machine was busy" in note for note in notes) is busy


def test_a_command_does_not_tell_where_somebody_works(tiny_model: Path, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "a.json"
    for program, said in ((str(tmp_path / "__main__.py"), ["jumpforward"]),
                          ("scripts/x.py", ["python", "scripts/x.py"])):
        monkeypatch.setattr("sys.argv", [program, "bench", "--out", str(out)])
        assert session(tiny_model, out, fresh=True).run([]).command == [*said, "bench", "--out", "a.json"]


def test_a_note_is_kept_once(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    for _ in range(2):
        notes = session(tiny_model, tmp_path / "a.json", note="two cores, others at work").run([]).notes
    assert len(notes) == 2
    assert notes[1] == "two cores, others at work"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, of what the libraries do when they are imported
def test_peers_write_texts_of_the_language(tiny_model: Path, tmp_path: Path) -> None:
    wanted = [one for one in plan([one for one in all_workloads() if one.name == "choice"], quick=False, stages=[9],
                                  engines=False)
              if isinstance(one, PeerCell) and one.batch == 1 and not one.peer.own_environment]
    ledger = session(tiny_model, tmp_path / "ledger.json").run(wanted)
    assert not [note for note in ledger.notes if note.startswith("left out")]
    assert [(one.mode, one.backend) for one in ledger.measurements] == [
        ("transformers", None), ("transformers", "xgrammar"), ("transformers", "llguidance"),
        ("transformers", "outlines"), ("outlines", "outlines")]
    for one in ledger.measurements:
        assert one.counts["requests"] == 2
        per_byte = {name.removesuffix("_ms_per_byte").replace("stage5", "over_stage5"): value
                    for name, value in one.denominators.items() if name.startswith("stage5_")}
        assert set(per_byte) == set(one.ratios)
        assert all(value > 0 for value in per_byte.values())
        if one.backend is None:
            assert one.counts["tokens"] == 64
            assert set(one.ratios) == {"over_stage5_plain"}
        else:
            assert one.texts[0] in ("sloop", "ketch", "full-rigged ship")
            assert one.texts[1] in ("yes", "no")
            assert set(one.ratios) == {f"over_stage5_{name}" for name in ("plain", "draft", "force", "force+draft")}
    torch.set_num_threads(1)


# ledger files

def test_an_interval_holds_the_median_19_times_in_20() -> None:
    assert Interval.of([1.0]) == Interval(1.0, 1.0, 1.0, 1)
    assert Interval.of([3.0, 1.0, 2.0]) == Interval(2.0, 1.0, 3.0, 3)
    eight = Interval.of([float(value) for value in range(8)])
    assert (eight.low, eight.high) == (0.0, 7.0)  # leaving out one of each end would be wrong 7 times in 100
    nine = Interval.of([float(value) for value in range(9)])
    assert (nine.low, nine.median, nine.high) == (1.0, 4.0, 7.0)
    with pytest.raises(ValueError, match="no median"):
        Interval.of([])


def test_a_folder_of_ledgers_is_verified(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no SHA256SUMS"):
        verify(tmp_path)
    out = tmp_path / "a.json"
    ledger = session(tiny_model, out).run([])
    ledger.measurements = [row(5, "plain", ratio=None)]
    ledger.write(out)
    write_sums(tmp_path)
    assert verify(tmp_path) == []

    ledger.write(tmp_path / "b.json")
    assert verify(tmp_path) == ["b.json: not in SHA256SUMS"]
    write_sums(tmp_path)
    (tmp_path / "b.json").unlink()
    assert verify(tmp_path) == ["b.json: listed, but not there"]
    write_sums(tmp_path)

    ledger.measurements[0].counts["sampled"] += 1
    ledger.measurements.append(ledger.measurements[0])
    ledger.write(out)
    faults = verify(tmp_path)
    assert faults[0] == "a.json: its checksum is another one"
    assert any("stands there 2 times" in one for one in faults)
    assert any("tokens came somehow" in one for one in faults)

    out.write_text("{}", encoding="utf-8")
    assert any("this is no ledger" in one for one in verify(tmp_path))


def test_a_row_of_an_engine_comes_back(tmp_path: Path, tiny_model: Path) -> None:
    ledger = session(tiny_model, tmp_path / "x.json").run([])
    counts = dict.fromkeys(("schemas", "ok", "refused", "wrong", "tokens", "masks"), 1)
    ledger.engines.append(EngineRow("xgrammar", counts, {"p50": 1.0}, {}, {"tree": "too deep"}))
    ledger.write(tmp_path / "x.json")
    assert read_ledger(tmp_path / "x.json") == ledger
    assert ledger.keys == {"masks/xgrammar"}
