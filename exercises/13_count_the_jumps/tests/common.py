"""Small repositories, the real one where there is a clone, and the checks of exercise 13."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import git

from history.clone import CONSTRAINED as CONSTRAINED
from history.clone import Clone, open_clone
from history.errors import HistoryError, NoCloneError
from jumpforward.exercises.case import Row, Wrong, expect, expect_equal, plain
from tests.history.synthetic import MANAGERS as MANAGERS
from tests.history.synthetic import STORY

Survey = Callable[[Clone, str, str, Sequence[str]], Any]
Files = Mapping[str, str | None]
Lines = Mapping[str, tuple[int, int]]
BOTH = (MANAGERS, CONSTRAINED)
REMOVAL = "935cda944b"
REAL: Lines = {MANAGERS: (19, 0), CONSTRAINED: (56, 51)}
UNREACHABLE = dict.fromkeys(
    ("is_jump_forward_symbol_state", "jump_and_retokenize", "jump_forward_str_state", "try_jump_forward"),
    "it is defined, and at this commit nothing in the two folders calls it")


def in_managers(text: str | None, name: str = "scheduler.py") -> Files:
    """A file of the scheduler's folder."""
    return {f"{MANAGERS}/{name}": text}


def in_constrained(text: str | None, name: str = "backend.py") -> Files:
    """A file of the grammars' folder."""
    return {f"{CONSTRAINED}/{name}": text}


@contextmanager
def repository(*commits: Files) -> Iterator[Clone]:
    """A repository with these commits; without any, those that tests/history has.

    Bare, and imported in one go: a check makes seventeen of them, and `git add` and `git commit` would start a process
    for each step. The settings of whoever runs this do not count.
    """
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TEMPLATE_DIR": ""}
    with tempfile.TemporaryDirectory(prefix="exercise-") as folder, patch.dict(os.environ, alone):
        path = Path(folder) / "sglang.git"
        with git.Repo.init(path, bare=True, initial_branch="main") as repo:
            stream = path / "commits"
            stream.write_bytes(b"".join(imported(day, files) for day, files in enumerate(commits or STORY, 1)))
            with stream.open("rb") as file:  # one pack: a folder for each object costs more than all the rest
                repo.git(c="fastimport.unpackLimit=1").fast_import("--quiet", istream=file)
        with Clone(path) as clone:
            yield clone


def imported(day: int, files: Files) -> bytes:
    """One commit as `git fast-import` reads it; a file that is None goes."""
    title = f"commit {day}\n".encode()
    lines = [b"commit refs/heads/main\ncommitter A Person <person@example.org> %d +0000\n" % (86400 * day),
             b"data %d\n%s" % (len(title), title)]
    for path, text in files.items():
        if text is None:
            lines.append(b"D %s\n" % path.encode())
        else:
            lines.append(b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(text.encode()), text.encode()))
    return b"".join(lines)


def asked(part: Survey, clone: Clone, ref: str, word: str) -> dict[str, Any]:
    """What the learner's survey says, in the shape that the contract asks for."""
    where = f"survey(clone, {ref!r}, {word!r}, folders)"
    try:
        got = plain(part(clone, ref, word, BOTH))
    except HistoryError as error:
        raise Wrong(f"{where}: it raised HistoryError: {error}") from error
    except SyntaxError as error:
        raise Wrong(f"{where}: it raised SyntaxError: {error.msg}: a file of the repository is no Python, or no more") \
            from error
    expect(isinstance(got, dict) and set(got) == {"lines", "unreachable"},
           f"{where}: must give a dict with 'lines' and 'unreachable', yours gives {got!r:.120}")
    answer: dict[str, Any] = got
    return answer


def the_lines_are(part: Survey, commits: Sequence[Files], ref: str, word: str, wanted: Lines) -> None:
    """Per folder, before and after."""
    with repository(*commits) as clone:
        _same_lines(asked(part, clone, ref, word)["lines"], wanted, f"at {ref!r}, {word!r}",
                    lambda folder: _told(clone, ref, folder))


def _told(clone: Clone, ref: str, folder: str) -> str:
    """What a folder holds at a commit."""
    files = {path.removeprefix(folder)[1:]: clone.text(ref, path) for path in clone.line_counts(ref, folder)}
    return "; after it " + (", ".join(f"{path} is {text!r}" for path, text in files.items()) or "no file is there")


def _same_lines(got: Any, wanted: Lines, where: str, told: Callable[[str], str] = lambda folder: "") -> None:
    expect(isinstance(got, dict) and list(got) == list(wanted),
           f"{where}: lines must have the folders {list(wanted)}, in that order; yours has {list(got)}")
    for folder, counts in wanted.items():
        if got[folder] != counts:
            raise Wrong(f"{where}: lines in {folder}, (before, after): yours gives {got[folder]!r}, expected "
                        f"{counts}{told(folder)}")


def nobody_calls(part: Survey, commits: Sequence[Files], word: str, wanted: Mapping[str, str],
                 reached: Mapping[str, str] | None = None) -> None:
    """Names that are out of reach, each with the reason; and what is within reach, and why."""
    with repository(*commits) as clone:
        _same_names(asked(part, clone, "HEAD", word)["unreachable"], wanted, reached or {}, f"at HEAD, {word!r}")


def _same_names(got: Any, wanted: Mapping[str, str], reached: Mapping[str, str], where: str) -> None:
    expect(isinstance(got, list), f"{where}: unreachable must be a list, yours is {got!r:.80}")
    for name, why in wanted.items():
        expect(name in got, f"{where}: unreachable: yours lacks {name!r}: {why}")
    for name in got:
        expect(name in wanted, f"{where}: unreachable: yours has {name!r}: {reached.get(name, 'it is called')}")
    expect_equal(got, sorted(wanted), f"{where}: unreachable, sorted and each name once")


def real_clone() -> Clone | None:
    """The user's clone, where there is one that has the commit."""
    try:
        clone = open_clone(None)
    except (HistoryError, NoCloneError):
        return None
    if clone.has(REMOVAL):
        return clone
    clone.close()
    return None


def the_real_commit(part: Survey) -> None:
    """The lines of the claim."""
    clone = real_clone()
    assert clone is not None
    with clone:
        _same_lines(asked(part, clone, REMOVAL, "jump_forward")["lines"], REAL, f"in your clone, at {REMOVAL}")


def the_real_functions(part: Survey) -> None:
    """And what is left out of reach."""
    clone = real_clone()
    assert clone is not None
    with clone:
        _same_names(asked(part, clone, REMOVAL, "jump")["unreachable"], UNREACHABLE, {}, f"in your clone, at {REMOVAL}")


def picture(part: Survey) -> list[Row]:
    """The removal: the real one, or the one of the small repository."""
    clone = real_clone()
    if clone is not None:
        with clone:
            return _drawn(asked(part, clone, REMOVAL, "jump_forward"), REAL, sorted(UNREACHABLE.keys() - {
                "jump_and_retokenize"}), f"your clone, {REMOVAL}")
    with repository() as small:
        return _drawn(asked(part, small, "HEAD", "jump_forward"), {MANAGERS: (3, 0), CONSTRAINED: (2, 2)},
                      ["jump_forward"], "a small repository, HEAD")


def _drawn(got: Mapping[str, Any], lines: Lines, names: Sequence[str], where: str) -> list[Row]:
    rows = [Row(f"{where}: {folder.rsplit('/', 1)[1]}", "{} -> {}".format(*got["lines"].get(folder, ("?", "?"))),
                f"{before} -> {after}") for folder, (before, after) in lines.items()]
    return [*rows, Row(f"{where}: unreachable", ", ".join(got["unreachable"]), ", ".join(names))]
