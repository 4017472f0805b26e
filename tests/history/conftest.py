from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from history.clone import Clone
from tests.history.synthetic import Synthetic, build


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synthetic]:
    made = build(tmp_path_factory.mktemp("clone") / "sglang")
    yield made
    made.repo.close()


@pytest.fixture
def clone(synthetic: Synthetic) -> Iterator[Clone]:
    with Clone(synthetic.path) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_clone_of_the_user(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("clone") is None:
        monkeypatch.delenv("SGLANG_REPO", raising=False)


@pytest.fixture(autouse=True)
def _no_git_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Settings of the person who runs the tests must not decide them."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "no-config"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
