"""The process that runs learners' code: it imports what is slow once, and forks for each check.

Started as `python -m jumpforward.exercises.sandbox`. A job is a line of JSON on standard input; what happens comes
as lines of JSON on standard output. The fork has limits on time, memory and file size and a session of its own, so an
endless loop, a crash or `sys.exit` ends the fork and nothing else; `guard` refuses what no answer needs. This guards
against accidents and curiosity, not against malice.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import importlib.util
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from jumpforward.exercises.attempt import attempt
from jumpforward.exercises.case import Case, Row, Wrong
from jumpforward.exercises.catalogue import ROOT
from jumpforward.exercises.guard import Guard

_FILE_BYTES = 64 << 20
_MOST_STEP_S = 0.25  # of a longer step the rest does not count: we were stopped, and so may the fork have been
_NOTICE_S = 0.5  # before the time limit, when a running fork notes where it is


@dataclass(frozen=True, slots=True)
class Job:
    """One check.

    Attributes:
        folder: of the exercise. part: the name that an answer defines. answer: a file that defines it, or a
            learner's folder. slug: of the exercise. sets: "visible", "grading" or both; none of them draws the picture.
        time_limit_s, memory_mb: for all of it. output, trace: files that get what is printed, and where it was.
        scratch: the folder that may be written into. packages: modules that are imported before the fork.
        trusted: the answer is the author's, which may use the solution. programs: those that it may start.
        first_failure: the cases behind the first that fails do not matter.
    """

    folder: str
    part: str
    answer: str
    slug: str
    sets: Sequence[str]
    time_limit_s: float
    memory_mb: int
    output: str
    trace: str
    scratch: str
    packages: Sequence[str] = ()
    trusted: bool = False
    programs: Sequence[str] = ()
    first_failure: bool = False

    def line(self) -> str:
        """As it is sent."""
        return json.dumps(asdict(self)) + "\n"


Emit = Callable[[dict[str, object]], None]


def serve(requests: TextIO, events: TextIO) -> None:
    """Do jobs until `requests` ends. Its first line is a word that begins every line of ours: nobody else's counts."""
    word = requests.readline().strip()

    def emit(event: dict[str, object]) -> None:
        events.write(f"{word} {json.dumps(event)}\n")
        events.flush()

    # jsonschema takes it for one format that no check asks for, and it takes longer to import than all the rest.
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # what the import system calls "not there"
    importlib.import_module("exercises.bench")
    gc.freeze()  # a fork that collects garbage would copy all of it
    emit({"event": "ready"})
    for line in requests:
        job = Job(**json.loads(line))
        for package in job.packages:  # once, and not in every fork
            importlib.import_module(package)
        _supervise(job, emit)


def _supervise(job: Job, emit: Emit) -> None:
    """Fork, wait until it ends or its time is over, and say how it ended."""
    pid = os.fork()
    if pid == 0:
        own = os.getpid()

        def say(event: dict[str, object]) -> None:
            if os.getpid() != own:  # somebody has forked, and the copy has come back to us
                os._exit(1)
            emit(event)

        try:
            _limit(job)
            _do(job, say)
            say({"event": "finished"})
        except BaseException:
            say({"event": "broken", "message": traceback.format_exc()})
        finally:
            sys.stdout.flush()
            os._exit(0)  # not through what the parent would clean up
    left, before = float(job.time_limit_s), time.monotonic()
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
        while not done and left > 0:
            time.sleep(0.01)
            now = time.monotonic()
            left, before = left - min(now - before, _MOST_STEP_S), now
            done, status = os.waitpid(pid, os.WNOHANG)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # with all it has started
    if not done:
        os.kill(pid, signal.SIGKILL)  # should it have left its group
        status = os.waitpid(pid, 0)[1]
    emit({"event": "end", "status": os.waitstatus_to_exitcode(status), "timed_out": not done})


def _limit(job: Job) -> None:
    import resource

    os.setsid()
    output = os.open(job.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", buffering=1), open(2, "w", buffering=1)  # noqa: SIM115
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    trace = Path(job.trace).open("w")  # noqa: SIM115  # open to the end: faulthandler writes into it
    faulthandler.enable(file=trace)
    faulthandler.dump_traceback_later(max(0.1, job.time_limit_s - _NOTICE_S), file=trace)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    with contextlib.suppress(OSError, ValueError):  # macOS has no such file, and does not hold this limit
        held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (held + (job.memory_mb << 20),) * 2)


def _do(job: Job, emit: Emit) -> None:
    """In the fork: say what will be checked, load the answer, then run the cases one after the other."""
    tests = {name: _tests(job, name) for name in job.sets}
    emit({"event": "plan", "cases": [[name, case.name] for name, cases in tests.items() for case in cases]})
    emit({"event": "start", "case": "loading your file"})
    picture = None if tests else _module(job, "visible").picture
    sys.dont_write_bytecode = True
    guard = Guard(Path(job.folder).parent, Path(job.scratch), trusted=job.trusted, programs=job.programs,
                  tell=lambda message: emit({"event": "fenced", "message": message}))
    answer = Path(job.answer)
    guard.begin()
    part: list[Any] = []
    message = attempt(lambda: part.append(load_part(job)), answer, job.memory_mb)
    message = guard.refused() or message or guard.replaced()
    if message is not None:
        emit({"event": "unloadable", "message": message})
        return
    for name, cases in tests.items():
        for case in cases:
            emit({"event": "start", "case": case.name})
            message = attempt(lambda case=case: case.run(part[0]), answer, job.memory_mb)  # type: ignore[misc]  # bound
            message = guard.refused() or message
            emit({"event": "case", "set": name, "case": case.name, "message": message})
            if message is not None and job.first_failure:
                return
    if picture is not None:
        emit({"event": "start", "case": "drawing the picture"})
        rows: list[Row] = []
        message = attempt(lambda: rows.extend(picture(part[0])), answer, job.memory_mb)
        emit({"event": "picture", "rows": [asdict(row) for row in rows], "message": guard.refused() or message})
    replaced = guard.replaced()
    if replaced is not None:
        emit({"event": "refused", "message": replaced})


def _tests(job: Job, name: str) -> list[Case]:
    return list(_module(job, name).CASES)


def _module(job: Job, name: str) -> ModuleType:
    return importlib.import_module(f"exercises.{Path(job.folder).name}.tests.{name}")


def load_part(job: Job) -> Any:
    """The learner's part.

    Raises:
        Wrong: there is none, in words. Whatever the learner's file raises when it is imported.
    """
    place = Path(job.answer)
    if place.suffix != ".py":
        sys.path.insert(0, str(place))
        adapters = place / "adapters.py"
        module = _module_of(adapters) if adapters.exists() else None
        if module is not None and hasattr(module, job.slug):
            try:
                return getattr(module, job.slug)()
            except ModuleNotFoundError as error:
                if error.name != job.slug:
                    raise
        place = place / f"{job.slug}.py"
    if not place.exists():
        raise Wrong(f"there is no file {place}; `jumpforward exercises next {job.slug}` puts the starter there")
    module = _module_of(place)
    if not hasattr(module, job.part):
        raise Wrong(f"{place.name} does not define {job.part}; the exercise's README says what it is")
    return getattr(module, job.part)


def _module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _start() -> None:
    sys.path.insert(0, str(ROOT))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with os.fdopen(os.dup(1), "w", buffering=1) as events:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        serve(sys.stdin, events)


if __name__ == "__main__":
    _start()
