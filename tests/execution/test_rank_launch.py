"""Starting ranks from the command line: with `--tp`, with `torchrun`, and what happens when one of them goes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jumpforward.cli import main
from shared_runtime.errors import ConfigError
from shared_runtime.execution.launch import launch
from shared_runtime.execution.rank_place import MEETING_VARIABLE, RankPlace
from stages import all_stages, first_stage_able
from tests.tiny_models import tiny_folder

ROOT = Path(__file__).resolve().parents[2]
CARD = ["run", "A card: ", "--no-chat", "--regex", '"[a-z]{3,9}": [0-9]{2}', "--stage", "5"]


@pytest.fixture(scope="module")
def shared_model(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose 8 heads and 4 key heads two or four ranks can share."""
    return tiny_folder(tmp_path_factory.mktemp("shared"), tokenizer_from=embedded_folder,
                       num_attention_heads=8, num_key_value_heads=4)


def _started(*words: str, program: tuple[str, ...] = (sys.executable, "-m", "jumpforward")) -> subprocess.Popen[str]:
    return subprocess.Popen([*program, *words], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=os.environ | {"OMP_NUM_THREADS": "1"})


def _ran(*words: str, program: tuple[str, ...] = (sys.executable, "-m", "jumpforward")) -> tuple[int, str, str]:
    process = _started(*words, program=program)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.mark.slow
def test_two_ranks_print_what_one_prints_and_only_once(shared_model: Path) -> None:
    alone = _ran(*CARD, "--model", str(shared_model))
    together = _ran(*CARD, "--model", str(shared_model), "--tp", "2")
    by_torchrun = _ran(*CARD, "--model", str(shared_model), program=(
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "jumpforward"))
    assert alone[0] == together[0] == by_torchrun[0] == 0, (alone, together, by_torchrun)
    assert alone[1] == together[1] == by_torchrun[1]
    assert "2 over gloo; they differed on 0 of" in together[2]
    assert together[2].count("finish reason") == by_torchrun[2].count("finish reason") == 1


@pytest.mark.slow
def test_the_json_of_ranks_is_one_object(shared_model: Path) -> None:
    code, out, err = _ran(*CARD, "--model", str(shared_model), "--tp", "2", "--json", "--n", "2", "--temperature", "1")
    assert code == 0, err
    assert [answer["valid"] for answer in json.loads(out)["answers"]] == [True, True]
    code, out, err = _ran("run", "x", "--no-chat", "--regex", "(", "--stage", "5", "--model", str(shared_model), "--tp",
                          "2", "--json")
    assert (code, err) == (1, f"loading {shared_model} ...\n")
    assert json.loads(out)["error"]["type"] == "GrammarSyntaxError"


# the divergence lab

@pytest.mark.slow
def test_the_lab_with_the_sync_differs_and_stays_in_step(shared_model: Path) -> None:
    code, out, err = _ran(*CARD, "--model", str(shared_model), "--tp", "2", "--disturb-rank", "1", "--temperature", "1",
                          "--seed", "1")
    assert code == 0, err
    assert re.fullmatch('"[a-z]{3,9}": [0-9]{2}\n', out)
    differed = re.search(r"they differed on (\d+) of (\d+) tokens", err)
    assert differed is not None
    assert 0 < int(differed[1]) <= int(differed[2])


@pytest.mark.slow
def test_the_lab_without_the_sync_ends_with_a_report(shared_model: Path) -> None:
    code, _, err = _ran(*CARD, "--model", str(shared_model), "--tp", "2", "--disturb-rank", "1", "--temperature", "1",
                        "--seed", "1", "--no-token-sync")
    assert code == 1
    assert err.count("the ranks have written different tokens for req-1: rank 0 ends with") == 1, err
    assert "sync_token_ids" in err


DOCS = (ROOT / "docs" / "ranks.md").read_text(encoding="utf-8")
COMMANDS = [block.strip() for block in re.findall(r"```sh\n(.*?)```", DOCS, flags=re.DOTALL)]


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_do_what_it_says(command: str, embedded_folder: Path) -> None:
    """Three ranks of the real model; the lab in both ways."""
    program, *words = shlex.split(command)
    assert program == "jumpforward"
    code, out, err = _ran(*words)
    if "--no-token-sync" in words:
        assert (code, "have written different tokens for req-1" in err) == (1, True), err
        return
    assert code == 0, err
    assert re.fullmatch(words[words.index("--regex") + 1], out.rstrip("\n"), re.ASCII)
    assert ("differed on 0 of" in err) is ("--disturb-rank" not in words)


# what cannot work is said before anything is started

@pytest.mark.parametrize(("words", "said"), [
    (["--tp", "3"], "3 ranks cannot share 8 heads and 4 key heads (use one of: 1, 2, 4)"),
    (["--tp", "8"], "use one of: 1, 2, 4"),
    (["--tp", "2", "--stage", "3"], "stage 3 agrees on nothing with other processes (use --stage 4)"),
    (["--tp", "0"], "greater than or equal to 1"),
    (["--tp", "2", "--disturb-rank", "2"], "there is no rank 2 of 2"),
    (["--disturb-rank", "0"], "--disturb-rank: one process has nobody to agree with (add --tp N)"),
    (["--no-token-sync"], "--no-token-sync: one process has nobody to agree with (add --tp N)"),
])
def test_a_wrong_number_of_ranks_is_an_error_that_says_what_works(
        words: list[str], said: str, shared_model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*CARD, "--model", str(shared_model), *words]) == 2
    assert said in capfd.readouterr().err


def test_the_capability_is_what_the_command_line_says(shared_model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = first_stage_able(lambda can: can.tensor_parallel)
    for spec in all_stages():
        code = main(["run", "x", "--model", str(shared_model), "--stage", str(spec.id), "--tp", "3"])
        told = capfd.readouterr().err
        assert code == 2
        assert ("cannot share" in told) is spec.capabilities.tensor_parallel
        assert (f"use --stage {first}" in told) is not spec.capabilities.tensor_parallel


# where a rank finds its place

def test_a_place_is_read_from_the_environment() -> None:
    torchrun = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    ours = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", MEETING_VARIABLE: "file:///tmp/x"}
    assert RankPlace.from_environment(torchrun) == RankPlace(5, 8, 1, "env://")
    assert RankPlace.from_environment(ours) == RankPlace(1, 2, 1, "file:///tmp/x")
    for alone in ({}, {"RANK": "0", "WORLD_SIZE": "2"}, torchrun | {"RANK": "0", "WORLD_SIZE": "1"}):
        assert RankPlace.from_environment(alone) is None
    for wrong in ({"RANK": "8"}, {"RANK": "-1"}, {"RANK": "first"}, {"WORLD_SIZE": "many"}, {"LOCAL_RANK": "?"}):
        with pytest.raises(ConfigError, match="is no place among ranks"):
            RankPlace.from_environment(torchrun | wrong)


def test_ranks_that_were_started_and_ranks_asked_for_must_be_as_many(
        shared_model: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "here"}.items():
        monkeypatch.setenv(name, value)
    assert main([*CARD, "--model", str(shared_model), "--tp", "2"]) == 2
    assert "2 ranks are asked for, and 4 were started" in capfd.readouterr().err


# when a rank goes

@pytest.mark.slow
@pytest.mark.parametrize("victim", ["0", "1"])
def test_a_killed_rank_ends_the_others_with_an_error(victim: str, shared_model: Path) -> None:
    """In mid-request, so that the others are waiting for it in a collective call."""
    process = _started("run", "x", "--no-chat", "--stage", "5", "--model", str(shared_model), "--tp", "2",
                       "--ignore-eos", "--max-new-tokens", "1900")
    try:
        assert process.stdout is not None
        assert process.stdout.read(1)  # it writes, so every rank runs
        ranks = _ranks_of(process.pid)
        os.kill(ranks[victim], signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert f"rank {victim} was killed by signal 9" in err
    assert all(not _alive(pid) for pid in ranks.values())


@pytest.mark.parametrize(("script", "code", "said"), [
    ("import sys; sys.exit(0)", 0, []),
    ("import os, sys; sys.exit(3 if os.environ['RANK'] == '0' else 0)", 3, []),
    ("import os, sys; sys.exit(3 if os.environ['RANK'] == '1' else 0)", 1, []),
    ("import os, time\nif os.environ['RANK'] == '1': os.kill(os.getpid(), 9)\ntime.sleep(60)", 1,
     ["rank 1 was killed by signal 9; the others end too",
      "rank 0 did not notice in 0.3 s that another had failed, and was ended"]),
])
def test_launch_looks_after_its_processes(script: str, code: int, said: list[str]) -> None:
    lines: list[str] = []
    assert launch([sys.executable, "-c", script], 2, say=lines.append, grace_s=0.3) == code
    assert lines == said


def test_launch_leaves_nobody_behind_when_it_is_ended(tmp_path: Path) -> None:
    script = ("import os, pathlib, time; pathlib.Path(os.environ['RANK']).write_text(str(os.getpid())); "
              "time.sleep(60)")
    body = ("import sys; from shared_runtime.execution.launch import launch; "
            f"launch([sys.executable, '-c', {script!r}], 2, say=print)")
    process = subprocess.Popen([sys.executable, "-c", body], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    deadline = time.monotonic() + 30
    written = [tmp_path / "0", tmp_path / "1"]
    while not all(path.exists() and path.read_text() for path in written) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
    assert not any(_alive(int(path.read_text())) for path in written)


def _ranks_of(parent: int) -> dict[str, int]:
    """Rank -> process id, of the ranks that `parent` has started."""
    found: dict[str, int] = {}
    for entry in _processes():
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            environment = (entry / "environ").read_bytes().decode().split("\0")
        except OSError:
            continue
        rank = next((one.removeprefix("RANK=") for one in environment if one.startswith("RANK=")), None)
        if int(fields[1]) == parent and rank is not None:
            found[rank] = int(entry.name)
    return found


def _processes() -> Iterator[Path]:
    if not Path("/proc/self/environ").exists():
        pytest.skip("reads /proc")
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
