"""What no answer needs: reading the solutions, writing files, other processes, the network, changing what grades it.

Python lets code in one process do anything to other code in it, so this is a fence and no wall: what happens by
accident or out of curiosity is refused and named, and counts as a failure also when the answer hides the exception.
Whoever grades work that may be hostile runs the whole of it in a container.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from jumpforward.exercises.catalogue import ROOT

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PROCESSES = {"os.fork", "os.forkpty", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen",
              "pty.spawn"}
_OTHERS = {"os.kill": "sends a signal", "os.killpg": "sends a signal", "socket.connect": "uses the network",
           "socket.bind": "uses the network", "resource.setrlimit": "moves the limits of the check",
           "gc.get_objects": "searches the interpreter's memory",
           "gc.get_referrers": "searches the interpreter's memory",
           "gc.get_referents": "searches the interpreter's memory"}
_PATHS: Mapping[str, tuple[tuple[int, int], ...]] = {  # event -> (argument that is a path, the one with its folder)
    "os.remove": ((0, 1),), "os.rmdir": ((0, 1),), "os.mkdir": ((0, 2),), "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),), "os.symlink": ((1, 2),), "os.truncate": ((0, 9),), "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),), "sqlite3.connect": ((0, 9),)}
_PRODUCT = {"exercises", "jumpforward", "stages", "shared_runtime", "tests", "history", "benchmarks"}
_USED = {"__main__", "builtins", "os", "posixpath", "re", "json", "threading", "time", "tempfile", "unittest.mock",
         "numpy", "torch"}
_FUNCTIONS = (FunctionType, BuiltinFunctionType, type, staticmethod, classmethod, property)


class Refused(PermissionError):
    """What an answer tried and may not do."""


class Guard:
    """Watches one fork from `begin` to its end; there is no way to switch it off.

    Args:
        folder: of the exercises. scratch: the one folder that may be written into.
        trusted: the answer is the author's own, which may use the solutions.
        programs: those that the exercise's tests start, and end. tell: called with the first thing that is refused.
    """

    def __init__(self, folder: Path, scratch: Path, *, trusted: bool, programs: Sequence[str],
                 tell: Callable[[str], None]) -> None:
        self._folder = os.path.realpath(folder)
        self._scratch = os.path.realpath(scratch)
        self._trusted, self._programs, self._tell = trusted, programs, tell
        self._before: dict[str, tuple[Any, dict[str, object]]] = {}
        self._said: list[str] = []

    def begin(self) -> None:
        """From here on nothing is allowed that no answer needs."""
        self._before = {name: (owner, dict(_parts(owner))) for name, owner in _owners()}
        sys.addaudithook(self._look)

    def refused(self) -> str | None:
        """What the answer tried that it may not, the first of it; None when it kept to the rules."""
        return self._said[0] if self._said else None

    def replaced(self) -> str | None:
        """What the answer has put in the place of something that grades it; None for nothing. Takes some 50 ms."""
        owners = dict(_owners())
        for name, (owner, parts) in self._before.items():
            now = dict(_parts(owner)) if owners.get(name) is owner else {}
            for part, value in parts.items():
                if now.get(part) is not value:
                    return (f"your code replaced {name}.{part}, which is no part of the answer; the answer is what "
                            "the exercise's README names")
        return None

    def _look(self, event: str, words: tuple[Any, ...]) -> None:
        """The audit hook: called for everything that Python tells, so what is common is left first."""
        if event == "open":
            self._opened(words[0], words[1], words[2])
        elif event in _PATHS:
            for path, place in _PATHS[event]:
                self._written(_where(words[path], words[place] if place < len(words) else -1))
        elif event in _PROCESSES:
            if not (event == "subprocess.Popen" and Path(os.fsdecode(words[0])).name in self._programs):
                self._refuse(f"your code starts another process ({event}); an answer runs in the one that it is given")
        elif event in _OTHERS and not (event == "os.kill" and (self._programs or words[0] == os.getpid())):
            self._refuse(f"your code {_OTHERS[event]} ({event}), which no answer needs")

    def _opened(self, path: object, mode: object, flags: object) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor that is open already
        place = _where(path)
        if not self._trusted and _tells(place, self._folder):
            self._refuse(f"your code reads {os.path.relpath(place, ROOT)}; find the answer yourself, "
                         "or see it with `jumpforward exercises solution N --give-up`")
        if (isinstance(mode, str) and set(mode) & set("wax+")) or (isinstance(flags, int) and flags & _WRITES):
            self._written(place)

    def _written(self, place: str) -> None:
        inside = place.startswith(self._scratch + os.sep) or place == os.devnull
        if not inside:
            self._refuse(f"your code writes to {place}; an answer may write only into a new temporary file or folder "
                         "(the module tempfile)")

    def _refuse(self, message: str) -> None:
        if not self._said:
            self._said.append(message)
            self._tell(message)  # at once: an answer that hides it may never come to its end
        raise Refused(message)


def _tells(place: str, folder: str) -> bool:
    """Whether a file tells the answer of an exercise."""
    if not place.startswith(folder + os.sep):
        return False
    name = place.rpartition(os.sep)[2].split(".")[0]
    return name in ("solution", "explanation") or f"{os.sep}wrong{os.sep}" in place


def _where(path: Any, folder: object = -1) -> str:
    """The whole path, links followed; `folder` is a descriptor, as `dir_fd` is."""
    text = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0 and not text.startswith(os.sep):
        try:
            text = f"{Path(f'/proc/self/fd/{folder}').readlink()}{os.sep}{text}"
        except OSError:
            return os.devnull  # only Linux tells where a descriptor leads
    return os.path.realpath(text)


def _owners() -> Iterator[tuple[str, Any]]:
    """What holds functions that grading calls: modules and their classes."""
    for name, module in list(sys.modules.items()):
        known = name in _USED or name.split(".")[0] in _PRODUCT
        if known and isinstance(module, ModuleType):
            yield name, module
            for inner, value in list(vars(module).items()):
                if isinstance(value, type) and value.__module__ == name:
                    yield f"{name}.{inner}", value
    torch = sys.modules.get("torch")
    if torch is not None:
        yield "torch.Tensor", torch.Tensor


def _parts(owner: Any) -> Iterator[tuple[str, object]]:
    """Functions and classes by name, and of a function the code that it runs."""
    for name, value in list(vars(owner).items()):
        if isinstance(value, _FUNCTIONS):
            yield name, value
            if isinstance(value, FunctionType):
                yield f"{name}.__code__", value.__code__
