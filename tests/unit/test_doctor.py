"""`jumpforward doctor` tells what is broken from what is merely absent, and says how to mend each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jumpforward import doctor
from jumpforward.cli import main
from jumpforward.doctor import Check, check_disk, check_memory, check_model, check_packages, check_python, check_tools
from shared_runtime.model.cached_folder import FolderSpec, build_folder

Capture = pytest.CaptureFixture[str]


def status_of(checks: list[Check], name: str) -> str:
    return next(check.status for check in checks if check.name == name)


def test_every_finding_that_is_not_ok_says_how_to_mend_it() -> None:
    findings = [
        check_python((3, 10, 1)), check_packages(["torch", "no-such-package>=1; python_version > '3'"]),
        check_packages([]), check_memory(2**30), check_disk(10, 20), *check_tools(lambda name: None),
    ]
    assert {check.status for check in findings} <= {"note", "broken"} | {"ok"}
    for check in findings:
        assert check.status == "ok" or check.fix, check


def test_an_old_python_is_broken_and_a_new_one_is_not() -> None:
    assert check_python((3, 10, 14)).status == "broken"
    assert check_python((3, 11, 0)).status == "ok"
    assert check_python((3, 14, 1)).status == "ok"


def test_only_packages_that_are_needed_count() -> None:
    assert check_packages(["torch>=2.6,<2.14", "rich>=14"]).status == "ok"
    assert check_packages(["torch", "no-such-package>=1; extra == 'docs'"]).status == "ok"
    missing = check_packages(["torch", "no-such-package[more]>=1"])
    assert missing.status == "broken"
    assert "no-such-package" in missing.detail
    assert "torch" not in missing.detail


def test_a_model_that_is_not_here_yet_is_no_fault_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    spec = FolderSpec(tmp_path / "model", "source", ("weights",))
    assert "is not here yet" in check_model(spec).detail
    build_folder(spec, lambda folder: _write(folder / "weights", b"12345678"), needed_bytes=0)
    assert check_model(spec).status == "ok"
    _write(spec.path / "weights", b"1234")
    assert "damaged" in check_model(spec).detail
    assert check_model(spec).status == "note"


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def test_a_full_disk_is_broken_only_while_something_must_be_written() -> None:
    assert check_disk(free=10, needed=0).status == "ok"
    full = check_disk(free=10_000_000, needed=700_000_000)
    assert full.status == "broken"
    assert "10 MB are free" in full.detail


def test_absent_tools_are_notes() -> None:
    checks = list(check_tools(lambda name: None))
    assert {check.name for check in checks} >= {"git", "chromium"}
    assert "broken" not in {check.status for check in checks}
    assert status_of(list(check_tools(lambda name: f"/bin/{name}")), "git") == "ok"


def test_a_cache_that_cannot_be_written_is_broken_and_names_the_variable(tmp_path: Path, capsys: Capture,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("", encoding="utf-8")
    monkeypatch.setenv("JUMPFORWARD_CACHE", str(not_a_folder / "cache"))
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "is not a folder" in shown
    assert "JUMPFORWARD_CACHE" in shown
    assert shown.splitlines()[-1].startswith("broken: ")


def test_looking_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMPFORWARD_CACHE", str(tmp_path / "cache"))
    doctor.examine()
    assert list(tmp_path.iterdir()) == []


def test_a_torch_that_cannot_be_imported_is_a_finding_and_not_a_traceback() -> None:
    def import_fails() -> list[Check]:
        raise OSError("libtorch.so: cannot open shared object file")

    checks = doctor._guarded("torch", import_fails)
    assert [(check.name, check.status) for check in checks] == [("torch", "broken")]
    assert "libtorch.so" in checks[0].detail
    assert checks[0].fix


def test_json_and_exit_code_say_the_same(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for status, code in (("ok", 0), ("note", 0), ("broken", 1)):
        finding = Check("thing", status, "detail", "fix")  # type: ignore[arg-type]  # one of the three
        monkeypatch.setattr(doctor, "examine", lambda finding=finding: [finding])
        assert main(["doctor", "--json"]) == code
        report = json.loads(capsys.readouterr().out)
        assert report["ok"] is (code == 0)
        assert report["checks"] == [{"name": "thing", "status": status, "detail": "detail", "fix": "fix"}]


def test_this_machine_is_described(capsys: Capture) -> None:
    main(["doctor", "--json"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert set(checks) >= {"python", "packages", "torch", "mkldnn", "cpu", "cuda", "memory", "cache", "model", "disk",
                           "git", "chromium", "triton"}
    assert checks["torch"]["status"] == "ok"
    assert "\x1b" not in json.dumps(checks)
