"""What came since the last jump is dropped, and the state is 0 again."""

from __future__ import annotations

from tests.museum.rows.row_06_answer_starts_again import RestartsOnRetraction


class Policy(RestartsOnRetraction):
    """The museum's specimen."""
