"""The registry: what is there is found by number or name, what is not is an error that says what is."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

import stages
from shared_runtime.constraint import ConstraintKind
from shared_runtime.errors import ConfigError
from stages import all_stages, first_stage_with, get_stage


@pytest.mark.parametrize("name", [1, "1", "stage1_copied_fsm"])
def test_a_stage_is_found_by_number_and_by_name(name: int | str) -> None:
    assert get_stage(name).name == "stage1_copied_fsm"


@pytest.mark.parametrize("name", [0, 99, -1, "", "stage9", "01", "stage1_copied_fsm "])
def test_an_unknown_stage_is_an_error_that_names_those_there_are(name: int | str) -> None:
    with pytest.raises(ConfigError) as caught:
        get_stage(name)
    for spec in all_stages():
        assert f"{spec.id} ({spec.name})" in str(caught.value)
    assert repr(name) in str(caught.value)


def test_stages_come_in_order_and_agree_with_their_packages() -> None:
    specs = all_stages()
    assert [spec.id for spec in specs] == sorted({spec.id for spec in specs})
    assert all(spec.name.startswith(f"stage{spec.id}_") for spec in specs)


def test_what_came_first_when_agrees_with_what_each_stage_can_do() -> None:
    for spec in all_stages():
        for kind in get_args(ConstraintKind):
            if kind in spec.capabilities.constraints:
                assert first_stage_with(kind) <= spec.id
            else:
                assert first_stage_with(kind) != spec.id


def test_importing_the_registry_imports_no_stage() -> None:
    code = "import stages, sys; print([name for name in sys.modules if name.startswith('stages.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_file_of_a_stage_says_which_snapshot_it_is() -> None:
    root = Path(stages.__file__).parent
    snapshots = tomllib.loads((root / "snapshots.toml").read_text(encoding="utf-8"))
    for spec in all_stages():
        folder = root / spec.name
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")} - {"__init__.py"}
        assert set(snapshots[spec.name]) == files
        for name, snapshot in snapshots[spec.name].items():
            assert set(snapshot) == {"upstream", "commit", "back_ports", "identical_to_previous"}, name
            assert re.fullmatch("[0-9a-f]{10}", snapshot["commit"]), name


def test_files_that_history_left_alone_are_byte_identical_in_both_stages() -> None:
    root = Path(stages.__file__).parent
    snapshots = tomllib.loads((root / "snapshots.toml").read_text(encoding="utf-8"))
    previous: str | None = None
    for spec in all_stages():
        for name, snapshot in snapshots[spec.name].items():
            if previous is None:
                assert not snapshot["identical_to_previous"], name
            elif snapshot["identical_to_previous"]:
                assert (root / spec.name / name).read_bytes() == (root / previous / name).read_bytes(), name
        previous = spec.name


def test_a_stage_imports_no_other_stage() -> None:
    root = Path(stages.__file__).parent
    names = {spec.name for spec in all_stages()}
    for spec in all_stages():
        for path in (root / spec.name).rglob("*.py"):
            found = set(re.findall(r"\bstage\d_\w+", path.read_text(encoding="utf-8")))
            assert found & names <= {spec.name}, path


def test_a_stage_keeps_to_its_size() -> None:
    root = Path(stages.__file__).parent
    most = {1: 700, 2: 700, 3: 700, 4: 1200, 5: 1920}
    for spec in all_stages():
        lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (root / spec.name).rglob("*.py")}
        assert sum(lines.values()) <= most[spec.id]
        assert max(lines.values()) <= 300


def test_every_stage_tells_its_story_under_the_same_headings() -> None:
    root = Path(stages.__file__).parent
    for spec in all_stages():
        readme = (root / spec.name / "README.md").read_text(encoding="utf-8")
        assert re.findall(r"^## (.+)$", readme, re.MULTILINE) == [
            "What changed", "Why upstream did it", "Commits", "What got better", "What got worse", "Run it",
            "Expected output"]
