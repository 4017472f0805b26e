"""From the repository to a folder of HTML: the pages are assembled, then a builder of `mkdocs.yml` runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scripts.site.assemble import assemble
from scripts.site.page import ROOT

SOURCE, SITE = ROOT / "build" / "site-src", ROOT / "site"


def build(source: Path = SOURCE, site: Path = SITE, *, builder: str = "mkdocs") -> subprocess.CompletedProcess[str]:
    """Assemble into `source`, build into `site` with a program beside this Python; a warning is a failure.

    Raises:
        SiteError: a page asks for something that is not there.
    """
    return _run(builder, ["build", "--strict", "--quiet", "--site-dir", str(site)], assemble(source / "en"))


def serve(source: Path = SOURCE) -> int:
    """Assemble, and serve on this machine until it is interrupted; a changed page needs another start.

    Raises:
        SiteError: a page asks for something that is not there.
    """
    return _run("mkdocs", ["serve"], assemble(source / "en"), captured=False).returncode


def _run(builder: str, words: list[str], source: Path, *, captured: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name(builder)), *words, "--config-file", str(ROOT / "mkdocs.yml")],
        cwd=ROOT, check=False, text=True, capture_output=captured,
        env=os.environ | {"JUMPFORWARD_SITE_SOURCE": str(source), "NO_MKDOCS_2_WARNING": "1"})
