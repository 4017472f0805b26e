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
            place = node.module.split(".")
            if place[:2] == ["shared_runtime", "constrain"] and len(place) > 2:
                found |= {place[3]} if len(place) > 3 else {alias.name for alias in node.names}
    return found


def test_the_map_of_the_seam_names_every_file_once_and_who_uses_it() -> None:
    needs = {path.stem: _needed(path) for path in SEAM.glob("*/*.py") if path.stem != "__init__"}
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
    listed: list[tuple[str, str, str]] = []
    for folder_name, part in re.findall(r"^`(\w+)/`(.*?)(?=^`|\Z)", constrain.__doc__ or "", re.MULTILINE | re.DOTALL):
        listed += [(folder_name, *found) for found in re.findall(r"^    (\w+) +([1-5]+|-) ", part, re.MULTILINE)]
    folders = {path.stem: path.parent.name for path in SEAM.glob("*/*.py")}
    assert sorted(listed) == sorted((folders[name], name, stages or "-") for name, stages in users.items())
