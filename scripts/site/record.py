"""Makes the site's recordings and traces again: `python -m scripts.site.record [NAME ...]`. fp32, exact mode.

Ids, texts, origins and counts are exact, as that mode promises; times differ from run to run and mean nothing.
Of the traces the times and the prefix cache are left out, and turns in which nothing ran.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from jumpforward.stepper.recording import Recording, record
from scripts.site.page import RECORDINGS
from shared_runtime.config import EngineConfig
from shared_runtime.constraint import Constraint
from shared_runtime.policy import BackendJump, StageOptions

PROMPT = "Tell me about the capital of France, as JSON."
REGEX = (r'\{"city": "[A-Za-z ]{1,12}", "country": "(France|Spain|Italy)", '
         r'"population in millions": [0-9]{1,2}\}')
STAGES: dict[str, tuple[str, BackendJump, bool | None]] = {
    **{f"stage{stage}": (str(stage), "none", None) for stage in range(1, 6)},
    "stage4-overlap": ("4", "none", True), "stage5-draft": ("5", "draft", None), "stage5-force": ("5", "force", None),
}
"""Name of a recording: its stage, what stage 5 does with forced text, and overlap; None is the stage's own way."""

TRACES: dict[str, list[str]] = {
    "overlap": ["--stage", "5", "--overlap", "on", "--regex", "[A-Z][a-z]{2,10} (sloop|schooner)",
                "Name a ship and its rig."],
    "walk": ["--stage", "5", "--backend-jump", "draft", "--regex", REGEX, PROMPT],
    "ranks": ["--stage", "4", "--tp", "3", "--regex", "[A-Z][a-z]{2,10} (sloop|schooner)", "Name a ship and its rig."],
    "ranks-free": ["--stage", "4", "--tp", "3", "--max-new-tokens", "6", "Name a ship and its rig."],
}
"""Name of a trace: the words behind `jumpforward run`."""


def make(name: str) -> Recording:
    """One of `STAGES`, by a run of now."""
    stage, jump, overlap = STAGES[name]
    config = EngineConfig(stage=stage, exact=True, overlap=overlap, options=StageOptions(backend_jump=jump))
    return record(config, None, messages=[{"role": "user", "content": PROMPT}], constraint=Constraint.regex(REGEX))


def trace(name: str) -> str:
    """One of `TRACES`, by a run of now, as JSON lines.

    Raises:
        CalledProcessError: the run failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        subprocess.run([sys.executable, "-m", "jumpforward", "run", "--exact", "--trace", str(path), *TRACES[name]],
                       check=True, capture_output=True)
        turns = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    kept = [turn | {"ms": {}, "tree": None} for turn in turns if turn["requests"]]
    return "".join(json.dumps(turn, ensure_ascii=False, separators=(",", ":")) + "\n" for turn in kept)


def main(arguments: list[str]) -> int:
    for name in arguments or [*STAGES, *TRACES]:
        if name in STAGES:
            make(name).save(RECORDINGS / f"{name}.json")
        else:
            (RECORDINGS / f"{name}.jsonl").write_text(trace(name), encoding="utf-8")
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
