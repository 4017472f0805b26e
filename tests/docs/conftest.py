"""The assembled pages, made once a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.site.assemble import assemble


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return assemble(tmp_path_factory.mktemp("pages") / "en")
