"""A small repository of SGLang's shape, made with GitPython: same folders, same kinds of commit, no tags."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import git

from history.clone import CONSTRAINED
from history.timeline import TimelineRow

MANAGERS = "python/sglang/srt/managers"


@dataclass
class Synthetic:
    """The repository, and a true timeline of it."""

    path: Path
    repo: git.Repo
    rows: list[TimelineRow] = field(default_factory=list)
    by_name: dict[str, str] = field(default_factory=dict)

    def commit(self, name: str, title: str, date: str, files: dict[str, str | None], *, stage: int = 1,
               kind: str = "feature") -> str:
        """Write files (None deletes one), commit, and add the row that is true of it."""
        for path, text in files.items():
            target = self.path / path
            if text is None:
                target.unlink()
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
        self.repo.git.add("-A")
        actor = git.Actor("A Person", "person@example.org")
        made = self.repo.index.commit(title, author=actor, committer=actor, author_date=f"{date}T12:00:00 +0900",
                                      commit_date=f"{date}T12:00:00 +0900")
        stats = made.stats.total
        self.rows.append(TimelineRow(date, made.hexsha, None, title, stage, kind, stats["files"],
                                     stats["insertions"], stats["deletions"]))
        self.by_name[name] = made.hexsha
        return made.hexsha


_STORY: tuple[tuple[str, str, str, dict[str, str | None], int, str], ...] = (
    ("initial", "release initial code", "2024-01-08", {
        f"{CONSTRAINED}/fsm.py": "one\ntwo\nthree\n", f"{CONSTRAINED}/fsm_cache.py": "cache\n",
        "python/pyproject.toml": '[project]\nversion = "0.1.5"\n'}, 1, "feature"),
    ("jump", "fast regex decode", "2024-01-25", {
        f"{CONSTRAINED}/jump_forward.py": "def jump_forward():\n    return jump_forward\n# é\n",
        f"{MANAGERS}/scheduler.py": "jump_forward()\n" * 3}, 2, "feature"),
    ("bump", "bump", "2024-02-11", {"python/pyproject.toml": '[project]\nversion = "0.1.12"\n'}, 2, "dep"),
    ("later bump", "bump", "2024-03-11", {"python/pyproject.toml": '[project]\nversion = "0.1.120"\n'}, 3, "dep"),
    ("removal", "Misc clean up", "2025-03-03", {
        f"{CONSTRAINED}/fsm.py": None, f"{MANAGERS}/scheduler.py": "pass\n"}, 5, "removal"),
)
STORY = tuple(files for _, _, _, files, _, _ in _STORY)
"""What each commit of `build` writes and deletes."""


def build(path: Path) -> Synthetic:
    """Five commits: a copied FSM, jumping in two layers, two version bumps, and its removal."""
    made = Synthetic(path, git.Repo.init(path, initial_branch="main"))
    for name, title, date, files, stage, kind in _STORY:
        made.commit(name, title, date, files, stage=stage, kind=kind)
    return made
