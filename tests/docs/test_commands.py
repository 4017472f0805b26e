"""Every command on the site runs, or says on the page why it is not run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from jumpforward import cli
from scripts import walk_trace
from scripts.site.page import DOCS, ROOT
from stages import all_stages

ENGLISH = DOCS / "en"
FENCE = re.compile(r"(<!-- not run[^>]*-->\n)?```(?:sh|bash)\n(.*?)```", re.DOTALL)
INLINE = re.compile(r"`((?:jumpforward|python|make|git) [^`]+)`")
TEXTS = {path.relative_to(ENGLISH).as_posix(): path.read_text(encoding="utf-8") for path in ENGLISH.rglob("*.md")}
MARKED = [line for text in TEXTS.values() for mark, block in FENCE.findall(text) if mark for line in block.splitlines()]
COMMANDS = sorted({line for text in TEXTS.values() for mark, block in FENCE.findall(text) if not mark
                   for line in block.splitlines()}
                  | {found for text in TEXTS.values() for found in INLINE.findall(FENCE.sub("", text))})
NEEDS_A_CLONE = [one for one in COMMANDS if one.startswith("git ") or "--repo" in one]
OURS = [one for one in COMMANDS if one.startswith("jumpforward ") and one not in NEEDS_A_CLONE]
LIGHT = [one for one in OURS if re.match(r"jumpforward (diff|history|museum|stages)\b", one)]
NEEDS_A_MODEL = [one for one in OURS if re.match(r"jumpforward (run|step|compare|check|doctor)\b.* ", one)]
TOLD = {"jumpforward bench run", "jumpforward check", "jumpforward doctor", "jumpforward exercises verify", "make demo",
        "make test", "make docs", "make docs-serve", "make lab", "make setup-dev", "python -m scripts.site.record",
        "python -m tests.museum 13"}
"""Named in a sentence; what they do is held by tests of their own, or needs minutes."""
ELSEWHERE = {
    "guides/command_line.md": "unit/test_packaging.py", "guides/gpu.md": "execution/test_gpu_check.py",
    "guides/loop.md": "execution/test_overlap_order.py", "guides/performance.md": "bench/test_report.py",
    "guides/ranks.md": "execution/test_rank_launch.py",
    **{f"stages/{spec.id}.md": "unit/test_stage_readmes.py" for spec in all_stages()},
}
"""Pages with commands from a guide or from a stage's README: which file of `tests/` runs them."""
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUN_THERE = set(re.findall(r"^(?:jumpforward|make) .+$", README, re.MULTILINE))
"""Commands of the README: `unit/test_packaging.py` runs them, once is enough."""


def test_every_command_is_of_a_kind_that_a_test_holds() -> None:
    rest = set(COMMANDS) - set(LIGHT) - set(NEEDS_A_MODEL) - set(NEEDS_A_CLONE) - TOLD - RUN_THERE
    assert not rest
    assert len(LIGHT) >= 3
    assert len(NEEDS_A_CLONE) >= 8


def test_every_block_of_commands_is_run_or_says_why_not(pages: Path) -> None:
    """Of the finished pages: what comes from elsewhere into a page, too."""
    found = {}
    for path in pages.rglob("*.md"):
        name = path.relative_to(pages).as_posix()
        for mark, block in FENCE.findall(path.read_text(encoding="utf-8")):
            if not mark and not set(block.splitlines()) <= set(COMMANDS) | RUN_THERE:
                found[name] = block
    assert set(found) == set(ELSEWHERE)
    for name, test in ELSEWHERE.items():
        source = "README.md" if name.startswith("stages/") else PurePosixPath(name).name
        text = (ROOT / "tests" / test).read_text(encoding="utf-8")
        assert source in text or "SCRIPT" in text, f"{test} does not read {source}"


@pytest.mark.parametrize("command", LIGHT)
def test_a_command_that_needs_no_model_runs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out.strip()


def test_the_make_targets_exist() -> None:
    for target in {one.split()[1] for one in (*COMMANDS, *MARKED) if one.startswith("make ")}:
        subprocess.run(["make", "-n", "-C", str(ROOT), target], capture_output=True, check=True)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("command", sorted({*NEEDS_A_MODEL} - RUN_THERE))
def test_a_command_with_a_model_runs(command: str, embedded_folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", *shlex.split(command)], cwd=ROOT, capture_output=True, text=True,
                          check=False, stdin=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.slow
@pytest.mark.model
def test_the_walk_of_the_loops_page_runs_on_the_trace_it_tells_to_write(embedded_folder: Path, tmp_path: Path) -> None:
    write, walk = [one for one in MARKED if "trace.jsonl" in one]
    subprocess.run([sys.executable, "-m", *shlex.split(write)], cwd=tmp_path, capture_output=True, check=True,
                   env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)})
    assert walk == "python scripts/walk_trace.py trace.jsonl"
    assert walk_trace.main([str(tmp_path / "trace.jsonl")]) == 0


@pytest.mark.clone
@pytest.mark.parametrize("command", NEEDS_A_CLONE)
def test_a_command_of_the_history_shows_something_in_a_clone(command: str) -> None:
    repo = os.environ.get("SGLANG_REPO")
    if repo is None:
        pytest.skip("SGLANG_REPO names no clone of SGLang")
    words = shlex.split(command)
    call = ["git", "-C", repo, *words[1:]] if words[0] == "git" else [
        sys.executable, "-m", *[repo if word == "sglang" else word for word in words]]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
