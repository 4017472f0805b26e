"""The event is set behind the build, and only there."""

from __future__ import annotations

from tests.museum.rows.row_01_frozen_server import EventOnlyCache


class Cache(EventOnlyCache):
    """The museum's specimen."""
