"""What the bench's tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may commit while a test runs; a ledger goes on only on the commit it was begun on."""
    monkeypatch.setattr("benchmarks.ledger._commit", lambda: "unknown")
