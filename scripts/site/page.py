"""One page on its way from `docs/` to the site, and what every piece of it is told."""

from __future__ import annotations

import functools
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from history.timeline import cited_commits, timeline

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RECORDINGS = DOCS / "recordings"
UPSTREAM = "https://github.com/{repo}/commit/{hash}"


class SiteError(Exception):
    """A page asks for something that is not there: the message names the page and what it asked for."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path below the language's folder, and that folder (`docs/en`)."""

    path: PurePosixPath
    folder: Path = DOCS / "en"

    @property
    def up(self) -> str:
        """From the page's address to the site's root: `index.md` is a folder's own, any other page is a folder."""
        depth = len(self.path.parts) - (1 if self.path.name == "index.md" else 0)
        return "../" * depth or "./"

    def own(self, name: str) -> Path:
        """A file of the language, or the English one where it has none."""
        path = self.folder / name
        return path if path.is_file() else DOCS / "en" / name

    def say(self, text: str) -> str:
        """A word that a piece writes by itself, in the page's language: from its `words.toml`, or as it is."""
        return _words(self.folder).get(text, text)

    def to(self, page: str) -> str:
        """The address of another page (`museum.md`, `stages/1.md#its-bugs`) for HTML of this one."""
        path, _, anchor = page.partition("#")
        folder = path.removesuffix("index.md") if path.endswith("index.md") else f"{path.removesuffix('.md')}/"
        return f"{self.up}{folder}" + (f"#{anchor}" if anchor else "")


@functools.cache
def _words(folder: Path) -> dict[str, str]:
    path = folder / "words.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


@functools.cache
def recording(name: str) -> dict[str, Any]:
    """A committed recording.

    Raises:
        SiteError: there is none of that name.
    """
    try:
        loaded: dict[str, Any] = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise SiteError(f"docs/recordings/{name}.json: {error.strerror}") from error
    return loaded


def commit_link(short: str) -> str:
    """The address of an upstream commit, from the first digits of its hash.

    Raises:
        SiteError: history/timeline.json and history/commits.json do not have it.
    """
    for row in timeline():
        if row.hash.startswith(short):
            return UPSTREAM.format(repo="sgl-project/sglang", hash=row.hash)
    for cited in cited_commits():
        if cited.hash.startswith(short):
            return UPSTREAM.format(repo=cited.repo, hash=cited.hash)
    raise SiteError(f"commit {short} is in neither history/timeline.json nor history/commits.json")
