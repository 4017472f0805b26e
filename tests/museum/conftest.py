"""The bench of the museum."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared_runtime.tokenizer import Tokenizer
from tests.museum.__main__ import import_libraries
from tests.museum.bench import Bench
from tests.museum.tiny import tiny_bytes_folder


@pytest.fixture(scope="session")
def tiny_bytes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny byte-level model."""
    return tiny_bytes_folder(tmp_path_factory.mktemp("tiny-bytes"))


@pytest.fixture(scope="session")
def libraries() -> None:
    """Import what takes seconds to import, so that no bounded wait has to wait for it."""
    import_libraries()


@pytest.fixture
def bench(tiny_bytes: Path, tmp_path: Path, libraries: None) -> Iterator[Bench]:
    """A bench for one test."""
    made = Bench(tiny_bytes, Tokenizer.from_folder(tiny_bytes), tmp_path)
    yield made
    made.close()
