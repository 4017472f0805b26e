"""The timeline: every commit that made, mended or removed a part of constrained decoding, as data.

`timeline.json` has one row a commit, oldest first; `commits.json` has every other commit that this project names.
Both are checked against a clone by `jumpforward history verify`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from history.errors import HistoryError

KINDS = ("feature", "fix", "dep", "removal")
_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One commit of the story.

    Attributes:
        date: the author's date, ISO. hash: 40 hex digits. pr: its pull request, None for a direct push.
        title: the first line of the message. stage: whose mechanism it belongs to, 1 to 5; not the calendar: a
            repair of jumping made in the Outlines months belongs to stage 2.
        kind: one of `KINDS`. files_changed, insertions, deletions: of the whole commit.
    """

    date: str
    hash: str
    pr: int | None
    title: str
    stage: int
    kind: str
    files_changed: int
    insertions: int
    deletions: int

    @property
    def short(self) -> str:
        """The hash as people write it."""
        return self.hash[:10]

    def as_dict(self) -> dict[str, object]:
        """The row as JSON values, with the names of the data file."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CitedCommit:
    """A commit that is named somewhere and is no row of the timeline.

    Attributes:
        hash: 40 hex digits. date, title: as the clone says. repo: `owner/name`.
        in_clone: False for one that only newer or other public copies have.
    """

    hash: str
    date: str
    title: str
    repo: str
    in_clone: bool


@cache
def timeline() -> tuple[TimelineRow, ...]:
    """All rows, oldest first."""
    return tuple(TimelineRow(**row) for row in json.loads((_FOLDER / "timeline.json").read_text(encoding="utf-8")))


@cache
def cited_commits() -> tuple[CitedCommit, ...]:
    """The commits of `commits.json`."""
    return tuple(CitedCommit(**row) for row in json.loads((_FOLDER / "commits.json").read_text(encoding="utf-8")))


def select(rows: Sequence[TimelineRow], *, stages: Sequence[int] = (), kinds: Sequence[str] = (),
           hashes: frozenset[str] | None = None) -> list[TimelineRow]:
    """The rows of these stages and kinds, and among `hashes` when given; an empty sequence stands for all.

    Raises:
        HistoryError: a stage or a kind that no row has.
    """
    for stage in stages:
        if not 1 <= stage <= 5:
            raise HistoryError(f"there is no stage {stage}", where="--stage", fix="use 1 to 5")
    for kind in kinds:
        if kind not in KINDS:
            raise HistoryError(f"there is no kind {kind!r}", where="--kind", fix=f"use one of: {', '.join(KINDS)}")
    return [row for row in rows
            if (not stages or row.stage in stages) and (not kinds or row.kind in kinds)
            and (hashes is None or row.hash in hashes)]
