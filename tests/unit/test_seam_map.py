"""The map in `shared_runtime/constrain/__init__.py` names every file once, with the stages that use it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from shared_runtime import constrain

ROOT = Path(__file__).resolve().parents[2]
SEAM = ROOT / "shared_runtime" / "constrain"


def _needed(path: Path) -> set[str]:
    """The files of the seam that a file imports, those for type checkers included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module == "shared_runtime.constrain":
                found |= {alias.name for alias in node.names}
            elif node.module.startswith("shared_runtime.constrain."):
                found.add(node.module.split(".")[2])
    return found


def test_the_map_of_the_seam_names_every_file_once_and_who_uses_it() -> None:
    needs = {path.stem: _needed(path) for path in SEAM.glob("*.py") if path.stem != "__init__"}
    users = dict.fromkeys(needs, "")
    for stage in range(1, 6):
        folder, = ROOT.glob(f"stages/stage{stage}_*")
        waiting, seen = {name for path in folder.rglob("*.py") for name in _needed(path)}, set[str]()
        while waiting:
            name = waiting.pop()
            seen.add(name)
            waiting |= needs[name] - seen
        for name in seen:
            users[name] += str(stage)
    listed = re.findall(r"^    (\w+) +([1-5]+|-) ", constrain.__doc__ or "", re.MULTILINE)
    assert sorted(listed) == sorted((name, stages or "-") for name, stages in users.items())
