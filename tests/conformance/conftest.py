"""Fixtures of the conformance suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared_runtime.tokenizer import Tokenizer
from tests.conformance.harness import Walkers
from tests.tiny_models import tiny_folder


@pytest.fixture(scope="session")
def tokenizer(embedded_folder: Path) -> Tokenizer:
    """The real tokenizer."""
    return Tokenizer.from_folder(embedded_folder)


@pytest.fixture(scope="session")
def walkers(tokenizer: Tokenizer) -> Walkers:
    """Walkers over the real vocabulary, compiled grammars shared."""
    return Walkers(tokenizer)


@pytest.fixture(scope="session")
def padded_model(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with logits wider than its tokenizer: 128 padding ids."""
    return tiny_folder(tmp_path_factory.mktemp("padded"), tokenizer_from=embedded_folder, vocab_size=49_280)
