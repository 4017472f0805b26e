"""One sandbox for all tests of the exercises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jumpforward.exercises.grader import Grader


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    """A started sandbox."""
    with Grader() as made:
        yield made
