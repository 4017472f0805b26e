"""What no answer needs is refused and named, and never counts as a pass; also where the answer would be right."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from jumpforward.exercises.case import Wrong, plain
from jumpforward.exercises.catalogue import ROOT, Exercise, all_exercises
from jumpforward.exercises.grader import CheckResult, Grader

FIRST = all_exercises()[0]
EXERCISE = replace(FIRST, time_limit_s=3, memory_mb=512)
RIGHT = FIRST.solution.read_text(encoding="utf-8")
SOLUTION = f"{FIRST.folder}/solution.py"
AT_ONCE = "\nimport os, sys, gc, time, subprocess, importlib, contextlib, pathlib\n"
HIDDEN = f"{AT_ONCE}with contextlib.suppress(BaseException):\n    "
"""Run as the file is loaded; what it raises is hidden."""


def check(grader: Grader, tmp_path: Path, source: str, exercise: Exercise = EXERCISE) -> CheckResult:
    (tmp_path / f"{exercise.slug}.py").write_text(source, encoding="utf-8")
    return grader.check(exercise, tmp_path)


@pytest.mark.parametrize(("does", "said"), [
    (f"open({SOLUTION!r}).read()", r"reads exercises/01_token_index/solution.py"),
    (f"os.read(os.open({SOLUTION!r}, os.O_RDONLY), 9)", r"reads exercises/01_token_index/solution.py"),
    ("importlib.import_module('exercises.01_token_index.solution')", r"reads exercises/01_token_index/"),
    (f"pathlib.Path({str(FIRST.wrong[0].file)!r}).read_text()", r"reads exercises/01_token_index/wrong/"),
    (f"open({str(FIRST.folder / 'explanation.md')!r})", r"reads exercises/01_token_index/explanation.md"),
    (f"pathlib.Path({str(ROOT)!r}, 'stray').touch()", r"writes to .*stray"),
    ("pathlib.Path(__file__).with_name('progress.json').write_text('{}')", r"writes to .*progress.json"),
    (f"os.rename({SOLUTION!r}, {SOLUTION + 'x'!r})", r"writes to .*solution.py"),
    (f"os.remove({SOLUTION!r})", r"writes to .*solution.py"),
    (f"os.remove('solution.py', dir_fd=os.open({str(FIRST.folder)!r}, os.O_RDONLY))", r"writes to .*solution.py"),
    ("os.mkdir(os.path.expanduser('~/stray'))", r"writes to .*stray"),
    ("os.fork()", r"starts another process \(os.fork\)"),
    ("os.system('true')", r"starts another process \(os.system\)"),
    (f"subprocess.run(['cat', {SOLUTION!r}])", r"starts another process \(subprocess.Popen\)"),
    ("os.kill(os.getppid(), 9)", r"sends a signal \(os.kill\)"),
    ("__import__('socket').create_connection(('127.0.0.1', 9))", r"uses the network"),
    ("__import__('resource').setrlimit(7, (9, 9))", r"moves the limits"),
    ("gc.get_objects()", r"searches the interpreter's memory"),
])
def test_what_no_answer_needs_is_refused_also_when_the_answer_hides_it(
        does: str, said: str, tmp_path: Path, grader: Grader) -> None:
    """The rest of the file is a right answer."""
    result = check(grader, tmp_path, f"{RIGHT}{HIDDEN}{does}\n")
    assert not result.passed
    assert result.stopped is not None
    assert re.search(said, result.stopped), result.stopped
    assert FIRST.solution.read_text(encoding="utf-8") == RIGHT


@pytest.mark.parametrize(("does", "said"), [
    ("import jumpforward.exercises.case as it\nit.expect = print", r"jumpforward.exercises.case.expect"),
    ("sys.modules['__main__'].attempt = lambda *words: None", r"__main__.attempt"),
    ("sys.modules['exercises.01_token_index.tests.common'].expect = lambda *words: None", r"tests.common.expect"),
    ("import stages.stage1_copied_fsm.fsm as it\nit.RegexFSM.next_state = lambda *words: 0", r"RegexFSM.next_state"),
    ("import jumpforward.exercises.case as it\nit.expect.__code__ = (lambda holds, message: None).__code__",
     r"case.expect.__code__"),
    ("import builtins\nbuiltins.sorted = lambda *words, **more: []", r"builtins.sorted"),
    ("import torch\ntorch.equal = lambda *words: True", r"torch.equal"),
    ("import types\nsys.modules['exercises.bench'] = types.ModuleType('exercises.bench')", r"exercises.bench"),
])
def test_an_answer_that_changes_what_grades_it_does_not_pass(
        does: str, said: str, tmp_path: Path, grader: Grader) -> None:
    for source in (f"{RIGHT}{AT_ONCE}{does}\n",
                   f"{RIGHT}{AT_ONCE}right = token_index\n\ndef token_index(table, token_bytes):\n    "
                   + does.replace("\n", "\n    ") + "\n    return right(table, token_bytes)\n"):
        result = check(grader, tmp_path, source)
        assert not result.passed
        assert re.search(f"replaced .*{said}", result.stopped or ""), result.first_failure
        assert result.cases == []
        assert result.as_gradescope()["score"] == 0


def test_a_line_that_the_grader_did_not_write_does_not_count(tmp_path: Path, grader: Grader) -> None:
    """Into every descriptor that there is: all cases passed, and finished."""
    claims = "".join(f'{{"event": "case", "set": "{name}", "case": "{case}", "message": null}}\\n'
                     for name, case in check(grader, tmp_path, RIGHT).planned) + '{"event": "finished"}\\n'
    forging = (f"for number in range(3, 40):\n    with contextlib.suppress(OSError):\n"
               f"        os.write(number, b'''{claims}''')\nos._exit(0)\n")
    result = check(grader, tmp_path, AT_ONCE + forging)
    assert not result.passed
    assert "wrote into the grader's channel" in (result.stopped or "")
    assert check(grader, tmp_path, RIGHT).passed


def test_cases_that_a_copy_of_the_process_runs_do_not_count(tmp_path: Path, grader: Grader) -> None:
    """A fork that no audit event tells of: both copies return from the case."""
    forks = f"{RIGHT}{AT_ONCE}import ctypes\nright = token_index\n\ndef token_index(table, token_bytes):\n" \
            "    ctypes.CDLL(None).fork()\n    " \
            "return right(table, token_bytes)\n"
    result = check(grader, tmp_path, forks)
    assert 1 < len({case.name for case in result.cases}) == len(result.cases)


@pytest.mark.parametrize("value", [
    "type('Every', (), {'__eq__': lambda self, other: True, '__hash__': lambda self: 0})()",
    "type('Number', (int,), {'__eq__': lambda self, other: True, '__hash__': lambda self: 0})(1)",
])
def test_a_value_that_equals_everything_equals_nothing(value: str, tmp_path: Path, grader: Grader) -> None:
    right_but = RIGHT.replace("def token_index(", "def right(") + (
        "\n\ndef token_index(table, token_bytes):\n"
        f"    index = right(table, token_bytes)\n"
        f"    return {{state: {{token: {value} for token in row}} for state, row in index.items()}}")
    result = check(grader, tmp_path, right_but)
    assert not result.passed
    assert result.first_failure is not None
    assert "return Python's own types" in (result.first_failure.message or "")


def test_plain_leaves_values_as_they_are() -> None:
    import numpy as np

    assert plain({np.int32(1): [True, None, (b"x", "y", 1.5)]}) == {1: [True, None, (b"x", "y", 1.5)]}
    with pytest.raises(Wrong, match="Counter"):
        plain([__import__("collections").Counter()])


def test_what_an_answer_may_do_passes(tmp_path: Path, grader: Grader) -> None:
    """Temporary files, files of its own beside it, threads, printing, a cache in a class of its own."""
    (tmp_path / "helper.py").write_text("LIMIT = 3\n", encoding="utf-8")
    more = ("import tempfile, threading\nfrom helper import LIMIT\n"
            "with tempfile.TemporaryDirectory() as folder:\n    pathlib.Path(folder, 'x').write_text('x')\n"
            "threading.Thread(target=print).start()\nprint(open(__file__).read()[:10], LIMIT)\n"
            "open(os.devnull, 'w').close()\n")
    result = check(grader, tmp_path, f"{RIGHT}{AT_ONCE}{more}")
    assert result.passed, result.first_failure
    assert not list(tmp_path.rglob("*.pyc"))


def test_of_programs_only_those_that_the_exercise_names_may_be_started(tmp_path: Path, grader: Grader) -> None:
    exercise = replace(EXERCISE, programs=("true",))
    assert check(grader, tmp_path, f"{RIGHT}{AT_ONCE}subprocess.run(['true'])\n", exercise).passed
    for does in ("subprocess.run(['false'])", "subprocess.run('true', shell=True)", "os.fork()", "os.system('true')"):
        stopped = check(grader, tmp_path, f"{RIGHT}{HIDDEN}{does}\n", exercise).stopped
        assert "starts another process" in (stopped or ""), does
