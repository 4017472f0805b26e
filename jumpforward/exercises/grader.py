"""From an answer to a result: jobs for the sandbox, and what its events mean in words a learner can act on."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jumpforward.exercises.case import Row
from jumpforward.exercises.catalogue import ROOT, Exercise
from jumpforward.exercises.sandbox import Job
from shared_runtime.errors import ConfigError

SETS = ("visible", "grading")
_PRINTED = 2_000  # characters of a check's output that are kept
_START_S = 120.0


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of one case: `message` is None when it passed. `set` is visible or grading."""

    set: str
    name: str
    message: str | None


@dataclass(slots=True)
class CheckResult:
    """What came of a check.

    Attributes:
        exercise: which. planned: the cases that there are, (set, name), those that did not run among them.
        cases: those that ran, in order. stopped: why the rest did not, None when all ran.
        printed: what the learner's code printed, its end. seconds: it took.
    """

    exercise: Exercise
    planned: list[tuple[str, str]] = field(default_factory=list)
    cases: list[CaseResult] = field(default_factory=list)
    stopped: str | None = None
    printed: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every case that was planned ran, once, and passed."""
        came = [(case.set, case.name) for case in self.cases if case.message is None]
        return self.stopped is None and bool(came) and len(self.cases) == len(came) and came == self.planned

    @property
    def first_failure(self) -> CaseResult | None:
        """The first case that failed; what stopped the check counts as one, at its place."""
        failed = next((case for case in self.cases if case.message is not None), None)
        if failed is None and self.stopped is not None:
            return CaseResult("visible", "the check", self.stopped)
        return failed

    def as_dict(self) -> dict[str, object]:
        """As `--json` prints it; see `exercises.schema.json`."""
        return {
            "number": self.exercise.number, "slug": self.exercise.slug, "title": self.exercise.title,
            "passed": self.passed, "stopped": self.stopped, "printed": self.printed, "seconds": round(self.seconds, 3),
            "planned": len(self.planned),
            "cases": [{"set": case.set, "name": case.name, "passed": case.message is None, "message": case.message}
                      for case in self.cases]}

    def as_gradescope(self) -> dict[str, object]:
        """Gradescope's `results.json`: a point for each case, also for those that did not run; out of 100."""
        came = {(case.set, case.name): case.message for case in self.cases}
        tests = []
        for key in self.planned:
            passed = key in came and came[key] is None
            output = came.get(key) or ("" if passed else f"not run: {self.stopped or 'an earlier case failed'}")
            tests.append({"name": f"{key[0]}: {key[1]}", "score": float(passed), "max_score": 1.0, "output": output,
                          "status": "passed" if passed else "failed",
                          "visibility": "visible" if key[0] == "visible" else "after_due_date"})
        share = sum(message is None for message in came.values()) / max(1, len(tests))
        return {"score": round(100 * share, 2), "execution_time": round(self.seconds, 2), "tests": tests,
                "output": self.stopped or f"{self.exercise.number}. {self.exercise.title}",
                "stdout_visibility": "hidden"}


class Grader:
    """The sandbox, started once. A context manager; one check at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="exercises-")
        self._word = secrets.token_hex(16)  # begins each line of the sandbox's
        self._last_words = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox and what runs in it."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        self._scratch.cleanup()

    def check(self, exercise: Exercise, answer: Path, *, every_case: bool = False,
              first_failure: bool = False) -> CheckResult:
        """Run the visible cases, and when they pass, those for grading.

        Args:
            answer: a file that defines the part, or a learner's folder.
            every_case: run those for grading in any case: for marks.
            first_failure: run nothing behind the first case that fails.
        """
        result = CheckResult(exercise)
        began = time.monotonic()
        for sets in (SETS,) if every_case else (SETS[:1], SETS[1:]):
            for event in self._run(exercise, answer, sets, result, first_failure=first_failure):
                if event["event"] == "plan":
                    result.planned += [(name, case) for name, case in event["cases"]]
                elif event["event"] == "case":
                    result.cases.append(CaseResult(event["set"], event["case"], event["message"]))
            if not result.passed:
                break
        result.seconds = time.monotonic() - began
        return result

    def picture(self, exercise: Exercise, answer: Path) -> tuple[list[Row], str | None]:
        """The picture of the part's work beside what is expected, and what went wrong on the way."""
        result = CheckResult(exercise)
        drawn = [event for event in self._run(exercise, answer, (), result) if event["event"] == "picture"]
        if not drawn:
            return [], result.stopped
        return [Row(**row) for row in drawn[0]["rows"]], result.stopped or drawn[0]["message"]

    def _run(self, exercise: Exercise, answer: Path, sets: Sequence[str], result: CheckResult, *,
             first_failure: bool = False) -> list[dict[str, Any]]:
        """The events of one job; how it ended goes into `result`."""
        process = self._ready()
        output, trace = Path(self._scratch.name) / "output", Path(self._scratch.name) / "trace"
        for path in (output, trace):
            path.write_text("", encoding="utf-8")
        # A file in the exercise's own folder is its author's, as `verify` checks them; learners have a folder.
        trusted = answer.is_file() and answer.resolve().is_relative_to(exercise.folder.resolve())
        job = Job(str(exercise.folder), exercise.part, str(answer.resolve()), exercise.slug, sets,
                  exercise.time_limit_s, exercise.memory_mb, str(output), str(trace), self._temporary(),
                  exercise.packages, trusted, exercise.programs, first_failure)
        assert process.stdin is not None
        process.stdin.write(job.line())
        process.stdin.flush()
        events: list[dict[str, Any]] = []
        while not events or events[-1]["event"] not in ("end", "gone"):
            events.append(self._event(process))
        result.printed = (result.printed + _end_of(output))[-_PRINTED:]
        result.stopped = _stopped(events, exercise, _place(trace, answer))
        if any(event["event"] in ("foreign", "refused") for event in events):  # nothing that was said can be believed
            return [event for event in events if event["event"] == "plan"]
        return events

    def _temporary(self) -> str:
        """What a check may write into: TMPDIR of its process."""
        folder = Path(self._scratch.name) / "tmp"
        folder.mkdir(exist_ok=True)
        return str(folder)

    def _ready(self) -> subprocess.Popen[str]:
        if self._process is None:
            if not hasattr(os, "fork"):
                raise ConfigError("checks need a system that can fork", where="exercises",
                                  fix="use Linux, macOS, or WSL on Windows")
            environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
                                        "TRITON_INTERPRET": "1",
                                        "TMPDIR": self._temporary(),
                                        # Else each thread reserves 64 MB of addresses, which the memory limit counts.
                                        "MALLOC_ARENA_MAX": "2"}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jumpforward.exercises.sandbox"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, encoding="utf-8", cwd=ROOT, env=environment,
                start_new_session=True)  # Ctrl-C is for us
            assert self._process.stdin is not None
            self._process.stdin.write(f"{self._word}\n")
            self._process.stdin.flush()
            if self._event(self._process)["event"] != "ready":
                raise ConfigError(f"the process for checks ended: {self._last_words}", where="exercises",
                                  fix="run `make setup-dev`; the checks use the repository's tests")
        return self._process

    def _event(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """The next event; "gone" when the process has ended, "foreign" for a line that it did not write."""
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            self._process = None
            said = process.stderr.read().strip().splitlines() if process.stderr else []
            self._last_words = said[-1] if said else "without a word"
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            return {"event": "gone"}
        word, _, text = line.partition(" ")
        if word != self._word:
            return {"event": "foreign"}
        event: dict[str, Any] = json.loads(text)
        return event


def missing_packages(exercise: Exercise) -> list[str]:
    """Modules that the exercise needs and this environment lacks."""
    return [name for name in exercise.packages if importlib.util.find_spec(name) is None]


def _stopped(events: list[dict[str, Any]], exercise: Exercise, place: str) -> str | None:
    """Why a job ended early, in words; None when it ran to its end."""
    kinds = {event["event"]: event for event in events}
    started = kinds.get("start")
    where = f"in the case {started['case']!r}" if started is not None else "at the start"
    if "foreign" in kinds:
        return f"{where} your code wrote into the grader's channel; print what you want to see, and write nowhere else"
    if "gone" in kinds:
        return f"{where} your code ended the process that checks it"
    if "refused" in kinds:
        return str(kinds["refused"]["message"])
    end = kinds["end"]
    if "unloadable" in kinds:
        return str(kinds["unloadable"]["message"])
    if "broken" in kinds:
        return f"the exercise itself is broken {where}: {kinds['broken']['message'].strip().splitlines()[-1]}"
    if "fenced" in kinds and "finished" not in kinds:  # it hid that, and went on
        return str(kinds["fenced"]["message"])
    if end["timed_out"]:
        return (f"{where} it did not end within {exercise.time_limit_s} s{place}: an endless loop, or two that wait "
                "for each other")
    if end["status"] < 0:
        name = signal.Signals(-end["status"]).name
        return f"{where} the process crashed with {name}{place}"
    if "finished" not in kinds:
        return f"{where} the process ended with code {end['status']}{place}: does your code call os._exit?"
    return None


def _end_of(output: Path) -> str:
    """The last that was printed; it may be long."""
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - 4 * _PRINTED))
        return file.read().decode("utf-8", "replace")[-_PRINTED:]


def _place(trace: Path, answer: Path) -> str:
    """From a dump of stacks, newest call first: the newest place in the learner's own code."""
    base = re.escape(str(answer.resolve()))
    found = re.search(rf'File "{base}(?:/([^"]+))?", line (\d+)', trace.read_text(encoding="utf-8", errors="replace"))
    return f" (it was at {found[1] or answer.name}, line {found[2]})" if found else ""
