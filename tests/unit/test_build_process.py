"""Builds in a child process: answered, killed when late, begun again, and never left behind."""

from __future__ import annotations

import gc
import subprocess
import time
from pathlib import Path

import pytest

from shared_runtime.constrain.compiling.build_process import BuildProcess
from shared_runtime.errors import ConfigError

BUILDS = '''
import os, time

def setup(job, shared):
    return "shared", job * 2

def add(job, shared):
    return "sum", job + shared

def sleep(job, shared):
    time.sleep(job)
    return "slept", job

def die(job, shared):
    os._exit(3)

def pid(job, shared):
    return "pid", os.getpid()

def fill(job, shared):
    return "filled", len(bytearray(job))
'''


@pytest.fixture
def process(tmp_path: Path) -> BuildProcess:
    path = tmp_path / "builds.py"
    path.write_text(BUILDS, encoding="utf-8")
    return BuildProcess(path, ("setup", 10))


def _alive(pid: object) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_jobs_share_what_the_setup_made_and_one_child(process: BuildProcess) -> None:
    assert process.starts == 0
    assert [process.run("add", number, 30.0) for number in (1, 2)] == [("sum", 21), ("sum", 22)]
    assert process.starts == 1


def test_a_late_job_is_killed_and_the_next_one_served(process: BuildProcess) -> None:
    process.run("add", 0, 30.0)
    started = time.monotonic()
    assert process.run("sleep", 60, 0.2) == ("late", None)
    assert time.monotonic() - started < 30
    assert process.run("add", 1, 30.0) == ("sum", 21)
    assert process.starts == 2


def test_a_child_that_dies_is_told_apart_from_a_late_one(process: BuildProcess) -> None:
    assert process.run("die", None, 30.0) == ("dead", None)
    assert process.run("add", 1, 30.0) == ("sum", 21)


def test_a_child_that_somebody_killed_is_replaced_before_the_next_job(process: BuildProcess) -> None:
    """The job that follows is not its victim."""
    process.run("add", 0, 30.0)
    assert process._child is not None
    process._child.kill()
    process._child.wait()
    assert process.run("add", 1, 30.0) == ("sum", 21)
    assert process.starts == 2


def test_a_machine_without_room_for_a_process_is_blamed_itself(process: BuildProcess,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_args: object, **_kwargs: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", none)
        with pytest.raises(ConfigError, match="does not start: Resource temporarily unavailable") as caught:
            process.run("add", 1, 30.0)
    assert caught.value.blame == "machine"
    assert process.run("add", 1, 30.0) == ("sum", 21)


@pytest.mark.skipif(not Path("/proc").exists(), reason="the memory limit is Linux's")
def test_memory_past_the_limit_kills_the_build_alone(process: BuildProcess) -> None:
    assert process.run("fill", 1 << 20, 30.0) == ("filled", 1 << 20)
    assert process.run("fill", 1 << 40, 30.0) == ("dead", None)
    assert process.run("add", 1, 30.0) == ("sum", 21)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
@pytest.mark.parametrize("how", ["close", "forget"])
def test_no_child_is_left_behind(process: BuildProcess, how: str, tmp_path: Path) -> None:
    own = BuildProcess(tmp_path / "builds.py", ("setup", 1))
    _, pid = own.run("pid", None, 30.0)
    assert _alive(pid)
    if how == "close":
        own.close()
        own.close()
    else:
        del own
        gc.collect()
    assert not _alive(pid)


def test_a_child_that_cannot_start_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "builds.py"
    path.write_text("import no_such_library", encoding="utf-8")
    with pytest.raises(ConfigError, match="does not start"):
        BuildProcess(path, ("setup", 1)).run("add", 1, 30.0)
