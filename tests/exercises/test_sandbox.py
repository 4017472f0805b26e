"""Whatever a learner's code does, it ends as a message that says what and where, and the next check works."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jumpforward.exercises.catalogue import Exercise, all_exercises
from jumpforward.exercises.grader import CheckResult, Grader

EXERCISE = replace(all_exercises()[0], time_limit_s=2, memory_mb=512)
HEAD = "def token_index(table, token_bytes):\n"


def check(grader: Grader, tmp_path: Path, source: str, exercise: Exercise = EXERCISE) -> CheckResult:
    answer = tmp_path / "token_index.py"
    answer.write_text(source, encoding="utf-8")
    return grader.check(exercise, answer)


@pytest.mark.parametrize(("source", "said"), [
    (f"{HEAD}    while True:\n        pass\n", r"did not end within 2 s \(it was at token_index.py, line [23]\)"),
    (f"{HEAD}    while True:\n        try:\n            1 / 0\n        except BaseException:\n            pass\n",
     r"did not end within 2 s \(it was at token_index.py, line [3-6]\)"),
    ("while True:\n    pass\n", r"'loading your file' it did not end within 2 s \(it was at token_index.py"),
    (f"import threading\n{HEAD}    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()\n",
     r"did not end within 2 s \(it was at token_index.py, line 5\)"),
    (f"import os\n{HEAD}    os.abort()\n", r"crashed with SIGABRT \(it was at token_index.py, line 3\)"),
    (f"import ctypes\n{HEAD}    ctypes.string_at(0)\n", r"crashed with SIGSEGV \(it was at token_index.py, line 3\)"),
    (f"import sys\n{HEAD}    sys.exit(0)\n", r"ended the program with sys.exit\(0\) \(token_index.py, line 3\)"),
    (f"import os\n{HEAD}    os._exit(0)\n", r"the process ended with code 0: does your code call os._exit\?"),
    (f"{HEAD}    return bytearray(1 << 40)\n", r"asked for more than 512 MB of memory \(token_index.py, line 2\)"),
    (f"{HEAD}    held = []\n    while True:\n        held.append(bytearray(1 << 24))\n",
     r"asked for more than 512 MB of memory \(token_index.py, line 4\)"),
    (f"{HEAD}    while True:\n        print('x' * 1_000_000)\n",
     r"printed or wrote more than a check may keep \(token_index.py, line 3\): a loop that prints without end"),
    (f"{HEAD}    breakpoint()\n", r"stops in a debugger.* print what you want to see"),
    (f"{HEAD}    input()\n", r"waits for somebody to type \(token_index.py, line 2\)"),
    (f"import torch\n{HEAD}    return torch.zeros(1 << 33)\n", r"asked for more than 512 MB .*line 3"),
    (f"{HEAD}    return token_index(table, token_bytes)\n", r"raised RecursionError: .*token_index.py, line 2"),
    (f"{HEAD}    return table[10_000]\n",
     r"raised IndexError: .* \(token_index.py, line 2\); the input: pattern 'ab\|abc'"),
    (f"{HEAD}    raise ValueError('long' * 1000)\n",
     r"raised ValueError: (long){75} \.\.\. \(token_index.py, line 2\)"),
    (f"{HEAD}    return {{\n", r"this is no Python: .* \(token_index.py, line 2\)"),
    (f"{HEAD}    raise KeyboardInterrupt\n", r"^it raised KeyboardInterrupt: +\(token_index.py, line 2\)"),
    ("raise KeyboardInterrupt\n", r"^it raised KeyboardInterrupt: +\(token_index.py, line 1\)"),
    ("x = 1\0\n", r"^this is no Python: source code string cannot contain null bytes$"),
    (f"import os\n{HEAD}    while True:\n        try:\n            os.fork()\n        except BaseException:\n"
     "            pass\n", r"^your code starts another process \(os.fork\)"),
    ("import no_such_module\n", r"raised ModuleNotFoundError: .*no_such_module.* \(token_index.py, line 1\)"),
    ("x = 1\n", r"does not define token_index"),
    (f"{HEAD}    return None\n", r"must return a dict"),
])
def test_what_goes_wrong_is_said_in_words(source: str, said: str, tmp_path: Path, grader: Grader) -> None:
    result = check(grader, tmp_path, source)
    assert not result.passed
    failure = result.first_failure
    assert failure is not None
    assert re.search(said, failure.message or ""), failure.message


def test_after_all_that_a_right_answer_passes(tmp_path: Path, grader: Grader) -> None:
    check(grader, tmp_path, "import os\nos.kill(os.getppid(), 0)\nos._exit(3)\n")
    assert grader.check(EXERCISE, EXERCISE.solution).passed


def test_what_is_printed_is_kept_and_bounded(tmp_path: Path, grader: Grader) -> None:
    result = check(grader, tmp_path, f"{HEAD}    print('x' * 10_000 + 'the end')\n")
    assert result.printed.strip().endswith("the end")
    assert len(result.printed) <= 2_000


def test_what_the_code_started_ends_with_it(tmp_path: Path, grader: Grader) -> None:
    mark = tmp_path / "alive"
    check(grader, tmp_path, "import subprocess, sys\n" + HEAD + "    subprocess.Popen([sys.executable, '-c', "
          f"'import time, pathlib; time.sleep(1); pathlib.Path({str(mark)!r}).touch()'])\n    return {{}}\n",
          replace(EXERCISE, programs=(Path(sys.executable).name,)))
    time.sleep(1.5)
    assert not mark.exists()


def test_one_check_leaves_nothing_to_the_next(tmp_path: Path, grader: Grader) -> None:
    spoils = "import stages.stage1_copied_fsm.decoder as decoder\ndecoder.build_fsm = None\n"
    check(grader, tmp_path, f"{spoils}{HEAD}    return {{}}\n")
    assert grader.check(EXERCISE, EXERCISE.solution).passed


def test_the_time_in_which_everything_is_suspended_does_not_count(tmp_path: Path, grader: Grader) -> None:
    """A closed laptop, or Ctrl-Z: the process that watches the clock stands still for longer than the limit."""
    assert grader.check(EXERCISE, EXERCISE.solution).passed
    sandbox = grader._process
    assert sandbox is not None

    def suspend() -> None:
        sandbox.send_signal(signal.SIGSTOP)
        time.sleep(2.5)
        sandbox.send_signal(signal.SIGCONT)

    right = EXERCISE.solution.read_text(encoding="utf-8")
    timer = threading.Timer(0.3, suspend)
    timer.start()
    result = check(grader, tmp_path, right + "\n\nimport time\n\ntime.sleep(1)\n", replace(EXERCISE, time_limit_s=2))
    timer.join()
    assert result.passed, result.first_failure


LOOKING = """
import threading, time
from shared_runtime.errors import GrammarTimeoutError


class Cache:
    def __init__(self, build, timeout):
        self.build, self.timeout, self.lock, self.came = build, timeout, threading.Lock(), {}

    def get(self, pattern):
        with self.lock:
            if pattern not in self.came:
                self.came[pattern] = None
                threading.Thread(target=self.fill, args=(pattern,), daemon=True).start()
        end = time.monotonic() + self.timeout
        while self.came[pattern] is None and time.monotonic() < end:
            time.sleep(EVERY)
        if self.came[pattern] is None:
            raise GrammarTimeoutError("too long", where="constraint")
        result, error = self.came[pattern]
        if error is not None:
            raise error
        return result

    def fill(self, pattern):
        try:
            self.came[pattern] = self.build(pattern), None
        except Exception as error:
            self.came[pattern] = None, error
"""


def test_who_looks_now_and_then_is_not_taken_for_one_that_hangs(tmp_path: Path, grader: Grader) -> None:
    """The race's checks see from sleeping threads that nothing will come, and these sleep most of the time."""
    exercise = next(one for one in all_exercises() if one.slug == "cache_race")
    answer = tmp_path / "cache_race.py"
    answer.write_text(LOOKING.replace("EVERY", "0.1"), encoding="utf-8")
    result = grader.check(exercise, answer)
    assert result.passed, result.first_failure
