"""What the libraries of today get wrong and no stage mends: listed, each with a reproducer that a test runs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from shared_runtime.conformance.case_file import Case
from shared_runtime.conformance.target import Target
from shared_runtime.constrain.schema.schema_regex import what_is_left_out
from shared_runtime.constraint import Constraint
from shared_runtime.errors import ConfigError

About = Literal["language", "narrower", "spellings"]


@dataclass(frozen=True, slots=True)
class Deviation:
    """One row of `stages/deviations.toml`.

    Attributes:
        case: a case's id, a grammar's fingerprint, "*" for every case, or what is left out of a JSON schema's texts
            (a `LeftOut`) for every schema of that kind.
        stages: the stages that it shows in. backend: and the backend.
        about: `language`, a text is wrongly in or out; `narrower`, a text is wrongly out, and none is wrongly in;
            `spellings`, only some ways to spell a text are allowed.
        library, version: whose behaviour it is, and the version that it was seen in.
        reproducer: Python that prints the wrong answer. upstream: where it is told or discussed.
        what: a sentence for people.
    """

    case: str
    stages: tuple[int, ...]
    backend: str
    about: About
    library: str
    version: str
    reproducer: str
    upstream: str
    what: str

    def covers(self, case: Case, target: Target, about: About) -> bool:
        """Whether this row is the reason that `target` is wrong about `case`."""
        return (self.about == about and self.backend == target.backend and target.spec.id in self.stages
                and self.case in ("*", case.id, case.fingerprint, *_left_out(case.constraint)))


@lru_cache(maxsize=64)
def _left_out(constraint: Constraint | None) -> frozenset[str]:
    if constraint is None or constraint.kind != "json_schema":
        return frozenset()
    return frozenset[str](what_is_left_out(constraint.source))


def shipped_deviations() -> tuple[Deviation, ...]:
    """The rows of `stages/deviations.toml`."""
    return parse_deviations(files("stages").joinpath("deviations.toml").read_text(encoding="utf-8"))


def parse_deviations(text: str) -> tuple[Deviation, ...]:
    """The rows of a deviations file.

    Raises:
        ConfigError: a row lacks a column or has one that is not known.
    """
    rows = tomllib.loads(text).get("deviation", [])
    columns = {one.name for one in fields(Deviation)}
    for number, row in enumerate(rows, start=1):
        if set(row) != columns:
            raise ConfigError(f"has the columns {', '.join(sorted(row))}, not {', '.join(sorted(columns))}",
                              where=f"deviation {number}")
    return tuple(Deviation(**(row | {"stages": tuple(row["stages"])})) for row in rows)


def deviation_of(rows: Iterable[Deviation], case: Case, target: Target, about: About) -> Deviation | None:
    """The first row that covers the case on the target; None when the answer is simply wrong."""
    return next((row for row in rows if row.covers(case, target, about)), None)
