"""One way to ask git about a repository that nobody vouches for.

A clone is untrusted input: its configuration can name programs (file-system monitors, external diffs, text converters,
signature checkers), its history can hold files of any size. So every question goes through here: nothing that the
repository configures is run, nothing is fetched, and what git prints has a limit, in bytes and in seconds.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from history.errors import HistoryError, NoCloneError

if TYPE_CHECKING:
    import git

MOST_BYTES = 32 * 1024 * 1024
MOST_SECONDS = 120.0

_HOW = "git clone https://github.com/sgl-project/sglang, then --repo sglang or SGLANG_REPO=sglang"
_SETTINGS = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.quotePath=false", "core.pager=cat",
             "log.showSignature=false", "log.mailmap=false", "diff.renames=true", "diff.renameLimit=1000",
             "diff.noprefix=false", "diff.mnemonicPrefix=false", "color.ui=false", "protocol.allow=never")
_ENVIRONMENT = {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_LITERAL_PATHSPECS": "1",
                "GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat", "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C"}


def open_repository(path: Path) -> git.Repo:
    """The repository at `path`: a clone's folder, or a bare one. Its parents are not searched.

    Raises:
        NoCloneError: there is none, git is missing, or git refuses it.
    """
    try:
        import git
    except ImportError as error:  # GitPython, or the program that it looks for
        raise NoCloneError(f"reading a clone needs git and GitPython: {str(error).splitlines()[0]}", where="history",
                           fix="install git, and pip install -e '.[history]'") from error
    try:
        repo = git.Repo(path, search_parent_directories=False)
    except git.NoSuchPathError as error:
        raise NoCloneError("there is no such folder", where=str(path), fix=_HOW) from error
    except Exception as error:  # a broken or foreign folder: GitPython says it in many ways
        raise NoCloneError(f"this is no git repository that can be read ({type(error).__name__})", where=str(path),
                           fix=_HOW) from error
    repo.git.set_persistent_git_options(c=list(_SETTINGS))
    repo.git.update_environment(**_ENVIRONMENT, GIT_DIR=str(Path(repo.git_dir).resolve()))
    return repo


def ask_git(repo: git.Repo, command: str, *words: str, nothing_is: int = 0) -> bytes:
    """What a git command prints.

    Args:
        repo: the repository. command: its name, `-` between its words.
        words: its options and arguments; what a user gave stands behind `--end-of-options` or `--`.
        nothing_is: the exit code that stands for "found nothing", beside 0.

    Raises:
        HistoryError: the command failed, printed more than `MOST_BYTES` or took longer than `MOST_SECONDS`.
    """
    held = getattr(repo.git, command.replace("-", "_"))(*words, as_process=True)  # ends the process when let go of
    process = held.proc
    timer = threading.Timer(MOST_SECONDS, process.kill)
    timer.start()
    said = _Drain(process.stderr)
    try:
        printed: bytes = process.stdout.read(MOST_BYTES + 1)
        if len(printed) > MOST_BYTES:
            process.kill()
        code = process.wait()
        said.join()
    finally:
        timer.cancel()
        process.stdout.close()
        process.stderr.close()
    if len(printed) > MOST_BYTES:
        raise HistoryError(f"git {command} prints more than {MOST_BYTES // 1024 // 1024} MB", where="clone",
                           fix="ask for a smaller part: a path, or fewer commits")
    if code not in (0, nothing_is):
        late = f"it took longer than {MOST_SECONDS:g} s" if code < 0 else f"exit {code}"
        raise HistoryError(f"git {command} failed: {said.last_line or late}", where="clone")
    return printed


class _Drain(threading.Thread):
    """Reads what a process says on standard error, so that it never waits for a reader; keeps the last line."""

    def __init__(self, stream: object) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.last_line = ""
        self.start()

    def run(self) -> None:
        assert hasattr(self._stream, "readline")
        while line := self._stream.readline(4096):
            self.last_line = line.decode("utf-8", "replace").strip() or self.last_line
