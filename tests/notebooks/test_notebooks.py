"""Every notebook: its two files say the same, it has all its parts, what it cites exists, and it runs to its end."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from history.timeline import cited_commits, timeline
from scripts.make_notebooks import FOLDER, sources

SOURCES = sources()
PARTS = ("**Can you answer these?", "**Predict.**", "## The stepper", "## Break it", "## Measure it",
         "## Test yourself", "## How to say it in an interview", "## The commits")
PATIENCE_S = 300  # for one cell; a busy machine must not decide a test

named = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def _pair(source: Path) -> tuple[Any, Any]:
    """The notebook as its text has it, and as the `.ipynb` file has it."""
    reader: Any = nbformat  # its functions have no types
    return jupytext.read(source), reader.read(source.with_suffix(".ipynb"), as_version=4)


def _text(cells: list[Any], kind: str) -> str:
    return "\n".join(cell.source for cell in cells if cell.cell_type == kind)


def test_the_notebooks_are_numbered_without_a_gap() -> None:
    assert [path.name[:2] for path in SOURCES] == [f"{number:02}" for number in range(len(SOURCES))]
    assert len(SOURCES) == len(list(FOLDER.glob("*.ipynb")))


@named
def test_source_and_notebook_are_a_pair(source: Path) -> None:
    """Who edits one of the files runs `make notebooks`, which brings the other up to date."""
    from_text, notebook = _pair(source)
    nbformat.validate(notebook)
    assert [(cell.cell_type, cell.source, cell.metadata.get("tags")) for cell in notebook.cells] == [
        (cell.cell_type, cell.source, cell.metadata.get("tags")) for cell in from_text.cells]
    assert notebook.metadata["jupytext"]["formats"] == "ipynb,py:percent"


@named
def test_outputs_are_not_in_the_repository(source: Path) -> None:
    for cell in _pair(source)[1].cells:
        assert cell.cell_type != "code" or (not cell.outputs and cell.execution_count is None)


@named
def test_a_notebook_has_all_its_parts(source: Path) -> None:
    prose = _text(jupytext.read(source).cells, "markdown")
    assert [part for part in PARTS if part not in prose] == []
    assert prose.count("<details>") == prose.count("</details>")
    assert prose.count("**Predict.**") == prose.count("<summary>Our answer") >= 2, "a prediction without an answer"
    asked, tested = prose.count("\n1. "), len(re.findall(r"<summary>\d\. ", prose))
    assert asked == 1, "one list of questions"
    assert tested >= 3


@named
def test_the_first_cell_of_code_sets_up_elsewhere_and_is_the_same_everywhere(source: Path) -> None:
    first, of_all = (next(cell for cell in jupytext.read(path).cells if cell.cell_type == "code")
                     for path in (source, SOURCES[0]))
    assert first.source == of_all.source
    assert first.metadata["tags"] == ["elsewhere"]
    assert "was not run" in first.source


@named
def test_links_lead_to_commits_that_the_history_knows(source: Path) -> None:
    known = {row.hash for row in timeline()} | {one.hash for one in cited_commits()}
    cells = jupytext.read(source).cells
    links = re.findall(r"\[`([0-9a-f]{10})`\]\(https://github\.com/sgl-project/sglang/commit/([0-9a-f]{40})\)",
                       _text(cells, "markdown"))
    assert links
    assert [full for short, full in links if full not in known or full[:10] != short] == []
    mentioned = set(re.findall(r"\b[0-9a-f]{10}\b", _text(cells, "markdown") + _text(cells, "code")))
    assert {one for one in mentioned if not any(full.startswith(one) for full in known)} == set()


def test_a_python_without_the_product_is_told_what_to_do(tmp_path: Path) -> None:
    """The set-up cell, where nothing is installed and no address is given."""
    cell = next(cell for cell in jupytext.read(SOURCES[0]).cells if cell.cell_type == "code")
    done = subprocess.run([sys.executable, "-I", "-S", "-c", cell.source], cwd=tmp_path, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1
    assert "put the git address of its repository into ADDRESS" in done.stderr


@pytest.mark.slow
def test_what_the_first_cell_installs_is_all_that_the_notebooks_import() -> None:
    """Elsewhere there is nothing of what only tests and documents need; the museum is imported in whole, too."""
    cells = [cell.source for source in SOURCES for cell in jupytext.read(source).cells if cell.cell_type == "code"]
    [extras] = re.findall(r"\./jumpforward\[([a-z,]+)\]", cells[0])
    [further] = re.findall(r'^ +"([a-z]+)", "-c"', cells[0], re.MULTILINE)
    allowed = _closure([("jumpforward", name) for name in ("", *extras.split(","))] + [(further, "")])
    absent = sorted(name for name, owners in metadata.packages_distributions().items()
                    if not {canonicalize_name(owner) for owner in owners} & allowed)
    assert {"hypothesis", "playwright", "mypy"} <= set(absent), "what stays away is there to be missed"
    imports = set(re.findall(r"^(?:from [\w.]+ import \w+|import \w+)", "\n".join(cells), re.MULTILINE))
    code = "\n".join([f"import sys\nsys.modules.update(dict.fromkeys({absent!r}))", *sorted(imports),
                      "from tests.museum.exhibits import all_exhibits", "all_exhibits()"])
    done = subprocess.run([sys.executable, "-c", code], cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-600:]


def _closure(todo: list[tuple[str, str]]) -> set[str]:
    """What installing these (package, extra) brings, here and now."""
    seen: set[tuple[str, str]] = set()
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for one in map(Requirement, _requirements(name)):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                todo += [(canonicalize_name(one.name), more) for more in ("", *one.extras)]
    return {name for name, _ in seen}


def _requirements(name: str) -> list[str]:
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # of another system or Python
        return []


@named
@pytest.mark.slow
@pytest.mark.model
def test_a_notebook_runs_to_its_end(source: Path, tmp_path: Path, embedded_folder: Path,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel of its own, as a reader's "run all": no error, no warning, and the stepper is shown."""
    from nbclient import NotebookClient

    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    notebook = _pair(source)[1]
    client = NotebookClient(notebook, timeout=PATIENCE_S, kernel_name="python3",
                            resources={"metadata": {"path": str(FOLDER)}})
    asyncio.run(client.async_execute())
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    complaints = [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    assert complaints == []
    assert any("application/vnd.jupyter.widget-view+json" in output.get("data", {}) for output in outputs)
