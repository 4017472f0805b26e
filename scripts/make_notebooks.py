"""Write every notebook of `notebooks/` anew from its text: `python -m scripts.make_notebooks`.

The `.py` file is the source. JupyterLab with jupytext keeps it up to date when the `.ipynb` file is edited; this brings
the `.ipynb` file up to date when the text is edited, and leaves out outputs. Cells are named by their place, so that a
change shows as what it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jupytext
import nbformat

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"


def sources() -> list[Path]:
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def notebook_of(source: Path) -> Any:
    notebook = jupytext.read(source)
    for place, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{place:02}"
    nbformat.validate(notebook)
    return notebook


def main() -> None:
    for source in sources():
        jupytext.write(notebook_of(source), source.with_suffix(".ipynb"))
        print(f"notebooks: {source.with_suffix('.ipynb').relative_to(FOLDER.parent)}")


if __name__ == "__main__":
    main()
