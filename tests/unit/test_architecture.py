"""Rules of the house that a reader relies on: who may import whom, and which words stay where."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared_runtime.policy import StageSpec
from stages import all_stages

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = re.compile(r"xgrammar|llguidance|outlines|interegular|\bfsm\b", re.IGNORECASE)
STAGE_LINES = {1: 700, 2: 700, 3: 700, 4: 1200, 5: 1920}  # of the last, 120 lines are ours: the jump given back
HEADINGS = ("What changed", "Why upstream did it", "Commits", "What got better", "What got worse", "Run it",
            "Expected output")


def _sources(folder: str) -> Iterator[Path]:
    return (path for path in sorted((ROOT / folder).rglob("*.py")))


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            found.add(node.module)
    return found


def test_no_stage_imports_another() -> None:
    for path in _sources("stages"):
        own = path.relative_to(ROOT / "stages").parts[0]
        for name in _imports(path):
            if name.startswith("stages."):
                assert name.split(".")[1] == own, f"{path} imports {name}"


def test_the_runtime_knows_no_jumping() -> None:
    """The word stays in the contract and in the trace; the product's own name does not count."""
    for path in _sources("shared_runtime"):
        if path.name not in ("trace.py", "policy.py"):
            words = re.findall(r"jump(?!forward)\w*", path.read_text(encoding="utf-8"), re.IGNORECASE)
            assert not words, f"{path} says {words}"


def test_the_runtime_knows_no_grammar_library() -> None:
    for path in _sources("shared_runtime"):
        if "constrain" not in path.parts and path.name not in ("policy.py", "config.py"):
            words = LIBRARIES.findall(path.read_text(encoding="utf-8"))
            assert not words, f"{path} says {words}"


def test_nothing_shipped_imports_a_test_dependency() -> None:
    for folder in ("shared_runtime", "stages", "jumpforward", "history", "benchmarks"):
        for path in _sources(folder):
            names = {name.split(".")[0] for name in _imports(path)}
            assert names.isdisjoint({"transformers", "pytest", "hypothesis", "regex", "tests"}), path


def test_files_stay_within_a_sitting() -> None:
    for folder in ("shared_runtime", "stages", "jumpforward", "history", "benchmarks", "scripts"):
        for path in _sources(folder):
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 320, path


@pytest.mark.parametrize("spec", all_stages(), ids=lambda spec: spec.name)
def test_a_stage_stays_within_its_size(spec: StageSpec) -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in _sources(f"stages/{spec.name}"))
    assert lines <= STAGE_LINES[spec.id]


@pytest.mark.parametrize("spec", all_stages(), ids=lambda spec: spec.name)
def test_each_stage_readme_has_the_same_headings(spec: StageSpec) -> None:
    text = (ROOT / "stages" / spec.name / "README.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == HEADINGS


def test_snapshots_name_every_file_of_every_stage() -> None:
    """`identical_to_previous` is byte for byte; a file that history did not touch must not differ."""
    data = tomllib.loads((ROOT / "stages" / "snapshots.toml").read_text(encoding="utf-8"))
    specs = all_stages()
    for index, spec in enumerate(specs):
        folder = ROOT / "stages" / spec.name
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")} - {"__init__.py"}
        listed = data[spec.name]
        assert set(listed) == files
        for name, entry in listed.items():
            if entry.get("identical_to_previous"):
                previous = ROOT / "stages" / specs[index - 1].name / name
                assert previous.read_bytes() == (folder / name).read_bytes(), f"{spec.name}/{name}"
