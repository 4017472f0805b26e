"""Three pictures of the history, as numbers: what a plot or a table is drawn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from history.clone import CONSTRAINED, Clone
from history.timeline import TimelineRow


@dataclass(frozen=True, slots=True)
class MonthOfStage:
    """Commits of one stage's mechanism in one month (YYYY-MM)."""

    month: str
    stage: int
    commits: int


@dataclass(frozen=True, slots=True)
class FolderSize:
    """Lines and files of a folder at the end of a month (YYYY-MM); binary files count as files only."""

    month: str
    commit: str
    lines: int
    files: int


@dataclass(frozen=True, slots=True)
class Churn:
    """Lines that the timeline's commits of one stage and kind added and deleted, in whole commits."""

    stage: int
    kind: str
    insertions: int
    deletions: int


def commits_by_month(rows: Sequence[TimelineRow]) -> list[MonthOfStage]:
    """How many commits each stage's mechanism got, month by month; months without any are left out."""
    found = Counter((row.date[:7], row.stage) for row in rows)
    return [MonthOfStage(month, stage, found[month, stage]) for month, stage in sorted(found)]


def folder_over_time(clone: Clone, folder: str = CONSTRAINED) -> list[FolderSize]:
    """The folder's size at the end of every month in which it changed."""
    sizes = []
    for month, commit in clone.months(folder):
        counts = clone.line_counts(commit, folder)
        sizes.append(FolderSize(month, commit, sum(count or 0 for count in counts.values()), len(counts)))
    return sizes


def churn(rows: Sequence[TimelineRow]) -> list[Churn]:
    """Additions against deletions, per stage and kind. The first commit is left out: it added the whole engine."""
    sums: dict[tuple[int, str], list[int]] = {}
    for row in rows[1:]:
        total = sums.setdefault((row.stage, row.kind), [0, 0])
        total[0] += row.insertions
        total[1] += row.deletions
    return [Churn(stage, kind, *sums[stage, kind]) for stage, kind in sorted(sums)]
