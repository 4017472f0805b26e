"""A stage's README promises an output; this runs its command and holds it to that."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from shared_runtime.policy import StageSpec
from stages import all_stages

ROOT = Path(__file__).resolve().parents[2]


def _section(text: str, heading: str) -> str:
    """The first fenced block under `heading`."""
    found = re.search(rf"^## {heading}\n.*?^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("spec", all_stages(), ids=lambda spec: spec.name)
def test_the_expected_output_of_a_stage_comes_out(spec: StageSpec, embedded_folder: Path) -> None:
    assert embedded_folder.is_dir()
    readme = (ROOT / "stages" / spec.name / "README.md").read_text(encoding="utf-8")
    program, *arguments = shlex.split(_section(readme, "Run it"))
    assert program == "jumpforward"
    done = subprocess.run([sys.executable, "-m", "jumpforward", *arguments], capture_output=True, text=True,
                          timeout=300, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    printed = [line.rstrip() for line in (done.stdout + done.stderr).splitlines()]
    at = 0
    for line in _section(readme, "Expected output").splitlines():
        assert line.rstrip() in printed[at:], f"{line!r} is not in {printed[at:]}"
        at = printed.index(line.rstrip(), at) + 1
