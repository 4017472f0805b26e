"""The notebooks as pages: run once, kept, and turned into Markdown.

A run is kept in `build/` under the sha256 of the notebook's text; `make clean` forgets it, and a fresh clone has none.
What cannot be shown on a page, a widget, is told in a sentence.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from scripts.site.page import ROOT, Page, SiteError

FOLDER = ROOT / "notebooks"
KEPT = ROOT / "build" / "notebooks"
_PATIENCE_S = 300
_WIDGET = "application/vnd.jupyter.widget-view+json"
_READER: Any = nbformat  # its functions have no types


def sources() -> list[Path]:
    """The notebooks' texts, in order."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def run_all() -> None:
    """Run every notebook that has not been run as it is, from top to bottom; minutes for all of them.

    Raises:
        CellExecutionError: a cell failed.
    """
    KEPT.mkdir(parents=True, exist_ok=True)
    for source in sources():
        kept = _kept(source)
        if kept.is_file():
            continue
        print(f"docs: running notebooks/{source.name}", flush=True)
        notebook = jupytext.read(source)
        with tempfile.TemporaryDirectory() as sockets:
            client = NotebookClient(notebook, timeout=_PATIENCE_S, kernel_name="python3", config=_by_files(sockets),
                                    resources={"metadata": {"path": str(FOLDER)}})
            asyncio.run(client.async_execute(env=os.environ | {"OMP_NUM_THREADS": "1"}))
        for old in KEPT.glob(f"{source.stem}-*.ipynb"):
            old.unlink()
        _READER.write(notebook, kept)


def _by_files(folder: str) -> Config:
    """A kernel is spoken to through files of its own: a port found free may be taken before it is opened."""
    return Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})


def index(page: Page) -> str:
    """Every notebook with what `notebooks/README.md` says of it.

    Raises:
        SiteError: it says nothing of one.
    """
    told = dict(re.findall(r"^\| `(\d\d_\w+)` \| (.+) \|$", (FOLDER / "README.md").read_text(encoding="utf-8"),
                           re.MULTILINE))
    rows = []
    for source in sources():
        if source.stem not in told:
            raise SiteError(f"notebooks/README.md has no row of {source.stem}")
        title = jupytext.read(source).cells[0].source.splitlines()[0].removeprefix("# ")
        rows.append(f"| [{title}]({'../' * (len(page.path.parts) - 1)}notebooks/{source.stem}.md) | "
                    f"{told[source.stem]} |")
    return f"| {page.say('notebook')} | {page.say('what it is about')} |\n|---|---|\n" + "\n".join(rows)


def markdown_of(source: Path) -> str:
    """A notebook's page; with its outputs where it has been run as it is, else with a sentence that says so."""
    kept = _kept(source)
    ran = kept.is_file()
    notebook = _READER.read(kept, as_version=4) if ran else jupytext.read(source)
    parts = [part for cell in notebook.cells if "elsewhere" not in cell.metadata.get("tags", [])
             for part in _cell(cell)]
    head, rest = parts[0].split("\n", 1) if "\n" in parts[0] else (parts[0], "")
    opened = (f"*A notebook of the repository, `notebooks/{source.stem}.ipynb`; `make lab` opens it, to be run and "
              f"changed. {'What it printed stands below each cell.' if ran else 'This page was built without a run.'}*")
    return "\n\n".join([head, opened, rest, *parts[1:]]) + "\n"


def _kept(source: Path) -> Path:
    return KEPT / f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.ipynb"


def _cell(cell: Any) -> Iterator[str]:
    if cell.cell_type == "markdown":
        yield re.sub(r"<details>", '<details markdown="1">', cell.source)
    elif cell.cell_type == "code":
        yield f"```python\n{cell.source}\n```"
        for output in cell.get("outputs", []):
            yield from _output(output)


def _output(output: Any) -> Iterator[str]:
    data = output.get("data", {})
    if output.output_type == "stream":
        yield _text(output.text)
    elif _WIDGET in data:
        yield "*Here the notebook shows the stepper; the pages of the stages have the same as a player.*"
    elif "image/svg+xml" in data:
        yield f'<div class="output">{_one_block(data["image/svg+xml"])}</div>'
    elif "image/png" in data:
        yield f'<img class="output" alt="the picture that the cell above draws" src="data:image/png;base64,' \
              f'{data["image/png"].strip()}">'
    elif "text/html" in data:
        yield f'<div class="output scroll" tabindex="0" role="region" aria-label="Output">' \
              f'{_one_block(data["text/html"])}</div>'
    elif "text/markdown" in data:
        yield str(data["text/markdown"])
    elif "text/plain" in data:
        yield _text(data["text/plain"])


def _text(text: str) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip("\n")
    fence = "`" * max(3, 1 + max((len(found) for found in re.findall(r"`+", plain)), default=0))
    return f'{fence}{{ .text .output }}\n{plain}\n{fence}'


def _one_block(html: str) -> str:
    """HTML without empty lines, which would end the block for Markdown."""
    return "\n".join(line for line in html.splitlines() if line.strip())
