"""What is known of each historical bug. The files lie in `rows/`, named after their numbers.

The numbers are fixed: they are those of the history that this product rebuilds.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import asdict, dataclass
from importlib.resources import files

from shared_runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Commit:
    """One upstream commit: the first ten digits of its hash, its author date, and its pull request if it had one."""

    commit: str
    date: str
    pr: int | None


@dataclass(frozen=True, slots=True)
class MuseumRow:
    """One bug.

    Attributes:
        number: of the row; also in its file's name and in the names of its tests. title: a line for people.
        stages: the generations whose mechanism it belongs to.
        found: the commits that repaired it; () when it never was while its code lived.
        caused_by: the commits that brought it, where known.
        evidence: `ran` when the historical code was executed and showed it, `read` when it was concluded from reading
            that code, `repair` when the repairing commit tells it.
        symptom, cause: what a user saw, and why. invariant: what must hold.
        scenario, wrong, right: the smallest case, what comes out of the faulty code, and what should.
        see: how to see it here.
        injectable: whether a mutation test runs a whole stage with the specimen in it. not_injectable: why not, ""
            when it does.
        needs: what its test needs beyond a CPU.
    """

    number: int
    title: str
    stages: tuple[int, ...]
    found: tuple[Commit, ...]
    caused_by: tuple[Commit, ...]
    evidence: str
    symptom: str
    cause: str
    scenario: str
    wrong: str
    right: str
    invariant: str
    see: str
    injectable: bool
    not_injectable: str
    needs: tuple[str, ...]

    @property
    def command(self) -> str:
        """Shows the bug happen, and the real parts beside it; works in a clone of the repository."""
        return f"python -m tests.museum {self.number}"

    def as_dict(self) -> dict[str, object]:
        """The row as JSON values."""
        return {**asdict(self), "command": self.command}


@functools.cache
def all_rows() -> tuple[MuseumRow, ...]:
    """Every row, by number."""
    found = [_read(file.read_text(encoding="utf-8")) for file in files("jumpforward.museum").joinpath("rows").iterdir()
             if file.name.endswith(".toml")]
    return tuple(sorted(found, key=lambda row: row.number))


def get_row(number: int) -> MuseumRow:
    """One row.

    Raises:
        ConfigError: there is no such row; names those that there are.
    """
    for row in all_rows():
        if row.number == number:
            return row
    known = ", ".join(str(row.number) for row in all_rows())
    raise ConfigError(f"the museum has no row {number}", where="museum", fix=f"it has: {known}")


def _read(text: str) -> MuseumRow:
    data = tomllib.loads(text)
    not_injectable = data.get("not_injectable", "")
    return MuseumRow(
        number=data["number"], title=data["title"], stages=tuple(data["stages"]),
        found=_commits(data["found"]), caused_by=_commits(data.get("caused_by", [])), evidence=data["evidence"],
        symptom=data["symptom"], cause=data["cause"], scenario=data["scenario"], wrong=data["wrong"],
        right=data["right"], invariant=data["invariant"], see=data["see"], injectable=not not_injectable,
        not_injectable=not_injectable, needs=tuple(data.get("needs", ())))


def _commits(entries: list[dict[str, object]]) -> tuple[Commit, ...]:
    return tuple(Commit(str(entry["commit"]), str(entry["date"]), _pull_request(entry.get("pr"))) for entry in entries)


def _pull_request(number: object) -> int | None:
    return number if isinstance(number, int) else None
