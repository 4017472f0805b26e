"""From the repository to a folder of HTML: the pages are assembled, then a builder of `mkdocs.yml` runs.

A language is a folder of `docs/` with an `index.md`. English is built into the site's root by `mkdocs.yml`, another one
into a folder of its own by `mkdocs.<language>.yml`, which inherits from it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scripts.site.assemble import ENGLISH, assemble
from scripts.site.page import DOCS, ROOT

SOURCE, SITE = ROOT / "build" / "site-src", ROOT / "site"


def languages(docs: Path = DOCS) -> list[Path]:
    """The folders of the languages, English first."""
    return [ENGLISH, *sorted(path.parent for path in docs.glob("*/index.md") if path.parent != ENGLISH)]


def build(source: Path = SOURCE, site: Path = SITE, *, builder: str = "mkdocs",
          folder: Path = ENGLISH, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    """Assemble a language into `source`, build it into `site` with a program beside this Python.

    A warning is a failure.

    Raises:
        SiteError: a page asks for something that is not there.
    """
    return _run(builder, ["build", "--strict", "--quiet", "--site-dir", str(site)],
                assemble(source / folder.name, folder), config)


def build_all(*, builder: str = "mkdocs") -> subprocess.CompletedProcess[str]:
    """Every language, each into its place; ends at the first that fails.

    Raises:
        SiteError: a page asks for something that is not there.
    """
    done = build(builder=builder)
    for folder in languages()[1:]:
        if done.returncode == 0:
            done = build(site=SITE / folder.name, builder=builder, folder=folder,
                         config=ROOT / f"mkdocs.{folder.name}.yml")
    return done


def serve(source: Path = SOURCE) -> int:
    """Assemble English, and serve on this machine until it is interrupted; a changed page needs another start.

    Raises:
        SiteError: a page asks for something that is not there.
    """
    return _run("mkdocs", ["serve"], assemble(source / "en"), ROOT / "mkdocs.yml", captured=False).returncode


def _run(builder: str, words: list[str], source: Path, config: Path, *,
         captured: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name(builder)), *words, "--config-file", str(config)],
        cwd=ROOT, check=False, text=True, capture_output=captured,
        env=os.environ | {"JUMPFORWARD_SITE_SOURCE": str(source), "NO_MKDOCS_2_WARNING": "1"})
