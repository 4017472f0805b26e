"""The assembled pages, and the built site; each is made once a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.site.assemble import assemble
from scripts.site.build import build


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return assemble(tmp_path_factory.mktemp("pages") / "en")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder / "source", folder / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"
