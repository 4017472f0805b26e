"""A user's clone of SGLang: refs, folders, files and differences, as values."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from history.errors import HistoryError, NoCloneError
from history.git_call import ask_git, open_repository

if TYPE_CHECKING:
    import git

CONSTRAINED = "python/sglang/srt/constrained"
"""The folder that the five stages are named after."""

MOST_FILE_BYTES = 1024 * 1024
_COUNT = re.compile(r"([^\0]*)\0(\d+)\n")  # a name may hold a newline
_VERSION = re.compile(r"v?(\d+\.\d+(?:\.\d+)?(?:\.?(?:post|rc|dev)\d+)?)")
_VERSION_FILES = ("python/pyproject.toml", "python/sglang/version.py")


@dataclass(frozen=True, slots=True)
class FileChange:
    """What one commit did to one file: lines added and deleted, None for a binary file."""

    path: str
    added: int | None
    deleted: int | None


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What a clone says of a commit: 40 hex digits, author's date (ISO, in the author's own zone), first line, size."""

    hash: str
    date: str
    title: str
    files_changed: int
    insertions: int
    deletions: int


class Clone:
    """Reads one repository, and never writes to it.

    Args:
        path: the clone's folder, or a bare repository.

    Raises:
        NoCloneError: there is none that can be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._repo: git.Repo = open_repository(path)
        self._resolved: dict[str, str] = {}

    def __enter__(self) -> Clone:
        """Itself; the `with` ends git's helper processes."""
        return self

    def __exit__(self, *_: object) -> None:
        """End git's helper processes."""
        self.close()

    def close(self) -> None:
        """End git's helper processes. Twice is once."""
        self._repo.close()

    # refs

    def resolve(self, ref: str) -> str:
        """The commit that `ref` names: a hash, branch, tag, `HEAD~3`, or a version such as v0.4.0.

        Some clones carry no tags: a version without one is looked up by the commit that wrote its number.

        Raises:
            HistoryError: the clone has no such commit, or `ref` is no ref at all.
        """
        if ref not in self._resolved:
            if not ref or len(ref) > 200 or ref.startswith("-") or not ref.isprintable():
                raise HistoryError(f"{ref[:60]!r} is no ref", where="ref", fix="name a commit, a branch or a version")
            found = self._parse(ref) or self._version_bump(ref)
            if found is None:
                raise HistoryError(f"the clone has no commit {ref!r}", where=str(self.path),
                                   fix="git fetch there, or see git log")
            self._resolved[ref] = found
        return self._resolved[ref]

    def has(self, commit: str) -> bool:
        """Whether the clone has this commit (40 hex digits)."""
        return self._parse(commit) is not None

    def _parse(self, ref: str) -> str | None:
        printed = ask_git(self._repo, "rev-parse", "--verify", "--quiet", "--end-of-options", ref + "^{commit}",
                          nothing_is=1)
        return printed.decode().strip() or None

    def _version_bump(self, ref: str) -> str | None:
        match = _VERSION.fullmatch(ref)
        if match is None:
            return None
        line = rf'^(version|__version__) = "{re.escape(match[1])}"'
        printed = ask_git(self._repo, "log", "--no-ext-diff", "--no-textconv", "--reverse", "--format=%H", "-G", line,
                          "HEAD", "--", *_VERSION_FILES)
        for commit in printed.decode().split():
            for path in _VERSION_FILES:
                text = self._text_or_none(commit, path)
                if text is not None and re.search(line, text, re.MULTILINE):
                    return commit
        return None

    # files

    def line_counts(self, ref: str, folder: str = CONSTRAINED) -> dict[str, int | None]:
        """Per file under `folder` at `ref`, its lines; None for a binary one."""
        commit = self.resolve(ref)
        return {change.path: change.added for change in self._changes(self._empty_tree, commit, folder)}

    def text(self, ref: str, path: str) -> str:
        """A file at `ref`; bytes that are no UTF-8 come as U+FFFD.

        Raises:
            HistoryError: no such file, a folder, or larger than `MOST_FILE_BYTES`.
        """
        text = self._text_or_none(self.resolve(ref), _inside(path))
        if text is None:
            raise HistoryError(f"{ref} has no file {path}", where=str(self.path),
                               fix=f"jumpforward history tree --at {ref} lists what it has")
        return text

    def _text_or_none(self, commit: str, path: str) -> str | None:
        try:
            entry = self._repo.commit(commit).tree / path
        except KeyError:
            return None
        if entry.type != "blob":
            return None
        if entry.size > MOST_FILE_BYTES:
            raise HistoryError(f"{path} is {entry.size // 1024} KB at {commit[:10]}, which is too large to show",
                               where=str(self.path), fix=f"git -C {self.path} show {commit[:10]}:{path}")
        return str(entry.data_stream.read().decode("utf-8", "replace"))

    def count(self, word: str, ref: str, folders: Sequence[str]) -> dict[str, int]:
        """Per file at `ref` that has it, the lines with `word` in them; binary files are not looked into.

        Raises:
            HistoryError: an empty word, or an unknown ref.
        """
        if not word or "\n" in word or "\0" in word:
            raise HistoryError("a word of one line is needed", where="word")
        printed = ask_git(self._repo, "grep", "--count", "--fixed-strings", "-I", "--no-textconv", "--full-name",
                          "--null", "-e", word, self.resolve(ref), "--", *[_inside(one) for one in folders],
                          nothing_is=1)
        found = {}
        for name, number in _COUNT.findall(printed.decode("utf-8", "replace")):
            found[name.partition(":")[2]] = int(number)
        return found

    # differences

    def changes(self, ref: str, folder: str | None = None) -> list[FileChange]:
        """What the commit changed against its first parent, file by file; a root commit added everything."""
        commit = self.resolve(ref)
        parents = self._repo.commit(commit).parents
        return self._changes(parents[0].hexsha if parents else self._empty_tree, commit, folder)

    @property
    def _empty_tree(self) -> str:
        return ask_git(self._repo, "hash-object", "-t", "tree", os.devnull).decode().strip()

    def _changes(self, old: str, new: str, folder: str | None) -> list[FileChange]:
        printed = ask_git(self._repo, "diff-tree", "-r", "--numstat", "-z", "--no-renames", "--no-ext-diff",
                          "--no-textconv", old, new, "--", *([] if folder is None else [_inside(folder)]))
        changes = []
        for line in printed.decode("utf-8", "replace").split("\0"):
            if line:
                added, deleted, path = line.split("\t", 2)
                changes.append(FileChange(path, _number(added), _number(deleted)))
        return changes

    def diff(self, old: str, new: str, path: str = CONSTRAINED) -> str:
        """The unified diff of `path` between two refs; "" when nothing differs."""
        printed = ask_git(self._repo, "diff-tree", "-r", "-p", "--no-ext-diff", "--no-textconv", self.resolve(old),
                          self.resolve(new), "--", _inside(path))
        return printed.decode("utf-8", "replace")

    # commits

    def facts(self, commits: Sequence[str]) -> dict[str, CommitFacts]:
        """Date, title and size of each commit that the clone has, by its hash; the others are left out."""
        known = [commit for commit in commits if self.has(commit)]
        if not known:
            return {}
        printed = ask_git(self._repo, "show", "--no-ext-diff", "--no-textconv", "--shortstat", "--date=short",
                          "--format=%x00%H%x1f%ad%x1f%s%x1f", "--end-of-options", *known)
        found = {}
        for block in printed.decode("utf-8", "replace").split("\0")[1:]:
            commit, date, title, stat = block.split("\x1f", 3)
            found[commit] = CommitFacts(commit, date, title, *(_stat(stat, word) for word in ("file", "ins", "del")))
        return found

    def touching(self, path: str) -> frozenset[str]:
        """Every commit of HEAD's history that touched `path`."""
        printed = ask_git(self._repo, "log", "--format=%H", "HEAD", "--", _inside(path))
        return frozenset(printed.decode().split())

    def months(self, folder: str = CONSTRAINED) -> list[tuple[str, str]]:
        """(month, last commit of that month) for each month of HEAD's history in which `folder` changed, oldest first.

        Returns:
            Months as YYYY-MM, by committer's date.
        """
        printed = ask_git(self._repo, "log", "--first-parent", "--format=%H %cs", "HEAD", "--", _inside(folder))
        last: dict[str, str] = {}
        for line in printed.decode().splitlines():
            commit, day = line.split()
            last.setdefault(day[:7], commit)
        return sorted(last.items())


def _inside(path: str) -> str:
    """`path`, when it stays inside the repository."""
    parts = PurePosixPath(path).parts
    if not path.isprintable() or not parts or path.startswith("/") or ".." in parts:
        raise HistoryError(f"{path[:80]!r} is no path inside a repository", where="path",
                           fix=f"name it as git does, such as {CONSTRAINED}")
    return str(PurePosixPath(path))


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def _stat(text: str, word: str) -> int:
    match = re.search(rf"(\d+) {word}", text)
    return int(match[1]) if match else 0


def open_clone(path: Path | None) -> Clone:
    """The clone at `path`, or at `SGLANG_REPO` when that is None.

    Raises:
        NoCloneError: none was named, or what was named is none.
    """
    named = path or (Path(os.environ["SGLANG_REPO"]) if os.environ.get("SGLANG_REPO") else None)
    if named is None:
        raise NoCloneError("this needs a clone of SGLang", where="history",
                           fix="git clone https://github.com/sgl-project/sglang, then --repo sglang or "
                               "SGLANG_REPO=sglang")
    return Clone(named.expanduser())
