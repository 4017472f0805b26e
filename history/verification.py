"""Is the timeline true? Each fact of it against a clone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from history.clone import Clone, CommitFacts
from history.timeline import CitedCommit, TimelineRow

Verdict = Literal["confirmed", "differs", "absent"]

CHECKED = ("date", "title", "files_changed", "insertions", "deletions")


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that the clone tells otherwise: its name, ours, the clone's."""

    fact: str
    ours: str
    clones: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of one commit: `absent` when the clone does not have it."""

    hash: str
    title: str
    verdict: Verdict
    differences: tuple[Difference, ...] = ()


def verify(clone: Clone, rows: Sequence[TimelineRow], cited: Sequence[CitedCommit] = ()) -> list[Checked]:
    """Every fact of each row, then of the cited commits that the clone should have."""
    expected = [one for one in cited if one.in_clone]
    named: list[TimelineRow | CitedCommit] = [*rows, *expected]
    facts = clone.facts([one.hash for one in named])
    return [_checked(one, facts.get(one.hash)) for one in named]


def _checked(one: TimelineRow | CitedCommit, found: CommitFacts | None) -> Checked:
    if found is None:
        return Checked(one.hash, one.title, "absent")
    differences = []
    for name in CHECKED:
        if hasattr(one, name):
            ours, clones = str(getattr(one, name)), str(getattr(found, name))
            if ours != clones:
                differences.append(Difference(name, ours, clones))
    return Checked(one.hash, one.title, "differs" if differences else "confirmed", tuple(differences))


def tally(checked: Sequence[Checked]) -> dict[Verdict, int]:
    """How many of each verdict, all three named."""
    found = Counter(one.verdict for one in checked)
    verdicts: tuple[Verdict, ...] = ("confirmed", "differs", "absent")
    return {verdict: found[verdict] for verdict in verdicts}
