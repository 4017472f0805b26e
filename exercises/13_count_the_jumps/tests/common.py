"""Small repositories, the real one where there is a clone, and the checks of exercise 13."""

from __future__ import annotations

import atexit
import contextlib
import functools
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
from tests.history.synthetic import Synthetic, build

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
    """A repository with these commits; without any, the one that tests/history has."""
    with contextlib.ExitStack() as ends:
        path = _made(ends, commits) if commits else _of_the_tests()
        yield ends.enter_context(Clone(path))


def _made(ends: contextlib.ExitStack, commits: Sequence[Files]) -> Path:
    """It goes when `ends` does. The settings of whoever runs this do not count."""
    path = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="exercise-"))) / "sglang"
    with patch.dict(os.environ, {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}):
        if not commits:
            build(path).repo.close()
            return path
        made = Synthetic(path, git.Repo.init(path, initial_branch="main"))
        for day, files in enumerate(commits, 1):
            made.commit(f"commit {day}", f"commit {day}", f"2025-03-{day:02}", dict(files))
        made.repo.close()
    return path


@functools.cache
def _of_the_tests() -> Path:
    """Made once: five commits take a third of a second."""
    ends = contextlib.ExitStack()
    atexit.register(ends.close)
    return _made(ends, ())


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
        after = clone.resolve(ref)
        files = {path: clone.text(after, path) for folder in wanted for path in clone.line_counts(after, folder)}
        told = {folder: "; after it " + (", ".join(f"{path.removeprefix(folder)[1:]} is {text!r}"
                                                   for path, text in files.items() if path.startswith(folder))
                                         or "no file is there") for folder in wanted}
        _same_lines(asked(part, clone, ref, word)["lines"], wanted, f"at {ref!r}, {word!r}", told)


def _same_lines(got: Any, wanted: Lines, where: str, told: Mapping[str, str] | None = None) -> None:
    expect(isinstance(got, dict) and list(got) == list(wanted),
           f"{where}: lines must have the folders {list(wanted)}, in that order; yours has {list(got)}")
    for folder, counts in wanted.items():
        expect(got[folder] == counts, f"{where}: lines in {folder}, (before, after): yours gives {got[folder]!r}, "
                                      f"expected {counts}{(told or {}).get(folder, '')}")


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
