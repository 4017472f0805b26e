"""Builds that can be stopped: a process that works for us and is killed when it takes too long.

A library call that compiles a grammar cannot be cancelled, and a pattern of ten characters can keep it busy for
minutes and in gigabytes. In a child it has a time limit and a memory limit, and nothing else suffers.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from threading import Timer

from shared_runtime.errors import ConfigError

_START_S = 60.0


class BuildProcess:
    """One child, started at the first job, and again after one had to be killed. One job at a time.

    Args:
        builds: the file of build functions (see `build_child`).
        setup: name and argument of the function that makes what all jobs share.
    """

    def __init__(self, builds: Path, setup: tuple[str, object]) -> None:
        self._builds = builds
        self._setup = setup
        self._child: subprocess.Popen[bytes] | None = None
        self._stop: Callable[[], object] = _nothing
        self.starts = 0

    def run(self, name: str, job: object, timeout: float) -> tuple[str, object]:
        """What the function `name` makes of `job`.

        Returns:
            What it is and the value: the function's own answer; ("late", None) when the child was killed after
            `timeout` seconds, ("dead", None) when it died over the job: of memory most likely, but whoever may end
            processes can have done it. A child that died before the job is only replaced.

        Raises:
            ConfigError: no child can be started; the machine's fault.
        """
        if self._child is not None and self._child.poll() is not None:
            self.close()
        if self._child is None:
            self._start()
        answer = self._exchange((name, job), timeout)
        if answer[0] in ("late", "dead"):
            self.close()
        return answer

    def close(self) -> None:
        """End the child, if there is one. Also done when this object is forgotten."""
        self._stop()
        self._child, self._stop = None, _nothing

    def _start(self) -> None:
        script = Path(__file__).with_name("build_child.py")
        try:
            child = subprocess.Popen([sys.executable, "-P", str(script), str(self._builds)], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError as error:  # no process, no memory, no file
            raise _no_child(str(error), "try again later") from None
        self._child, self._stop = child, weakref.finalize(self, _end, child)
        self.starts += 1
        if self._exchange(self._setup, _START_S)[0] != "shared":
            self.close()
            raise _no_child("it ended at once", "check that the grammar libraries can be imported")

    def _exchange(self, message: object, timeout: float) -> tuple[str, object]:
        child = self._child
        if child is None or child.stdin is None or child.stdout is None:
            return "dead", None
        late: list[bool] = []

        def kill() -> None:
            late.append(True)
            child.kill()

        timer = Timer(timeout, kill)
        timer.daemon = True
        timer.start()
        answer: tuple[str, object] = ("dead", None)
        try:
            pickle.dump(message, child.stdin, pickle.HIGHEST_PROTOCOL)
            child.stdin.flush()
            what, value = pickle.load(child.stdout)
            answer = str(what), value
        except (EOFError, OSError, pickle.UnpicklingError):
            answer = "dead", None
        finally:
            timer.cancel()
            timer.join()  # so that a kill that came too late is known before the next job
        return ("late", None) if late else answer


def _no_child(why: str, fix: str) -> ConfigError:
    return ConfigError(f"the process that builds grammars does not start: {why}", where="stage",
                       fix=fix).blamed("machine")


def _nothing() -> None:
    """There is no child to end."""


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was still to be written has nobody to read it
                continue
